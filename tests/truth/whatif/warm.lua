-- SPDX-License-Identifier: GPL-2.0-only
-- The storm's query on one connection for each thread, which stays open.

require("tlstax_report")
require("tlstax_gate")

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
   tlstax_report_connects(1)
end

function event()
   connection:query("SELECT 1")
end

function thread_done()
   connection:disconnect()
end
