-- SPDX-License-Identifier: GPL-2.0-only
-- Results of RESULT_KB in rows of 1 KB, on one connection for each thread, which stays open.

require("tlstax_report")
require("tlstax_gate")

local QUERY = string.format("SELECT REPEAT('x', 1000) FROM seq_1_to_%d", RESULT_KB)

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
   tlstax_report_connects(1)
end

function event()
   connection:query(QUERY)
end

function thread_done()
   connection:disconnect()
end
