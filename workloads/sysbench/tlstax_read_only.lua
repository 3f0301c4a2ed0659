-- SPDX-License-Identifier: GPL-2.0-only
-- Pooled: sysbench's own oltp_read_only on connections that stay open, one per thread.

require("oltp_read_only")
require("tlstax_report")
require("tlstax_gate")

local connect_all = thread_init

function thread_init()
   connect_all() -- oltp_common.lua: one connection, and its prepared statements
   tlstax_report_connects(1)
end
