-- SPDX-License-Identifier: GPL-2.0-only
-- Pooled: one of sysbench's own scripts, which TLSTAX_SCRIPT names, on connections that stay open,
-- one per thread.

require(assert(os.getenv("TLSTAX_SCRIPT"), "TLSTAX_SCRIPT names no script"))
require("tlstax_report")
require("tlstax_gate")

local connect_all = thread_init

function thread_init()
   connect_all() -- one connection, and its prepared statements
   tlstax_report_connects(1)
end
