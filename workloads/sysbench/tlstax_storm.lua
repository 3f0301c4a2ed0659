-- SPDX-License-Identifier: GPL-2.0-only
-- Connect storm: each event connects, runs one query, disconnects. Nothing is pooled, so each event
-- costs the server a thread's work of connecting and, with --mysql-ssl=on, one full handshake.

require("tlstax_report")
require("tlstax_gate")

local connects = 0

function thread_init()
   driver = sysbench.sql.driver()
end

function event()
   local connection = driver:connect()
   connects = connects + 1
   connection:query("SELECT 1")
   connection:disconnect()
end

function thread_done()
   tlstax_report_connects(connects)
end
