-- SPDX-License-Identifier: GPL-2.0-only
-- Connect storm: each event connects, runs one query, disconnects. Nothing is pooled, so each event
-- costs the server a thread's work of connecting and, with --mysql-ssl=on, one full handshake.
-- With TLSTAX_COUNTS_LOSSES in the environment, a connection that fails is counted and does not
-- end the run.

require("tlstax_report")
require("tlstax_gate")

local counts_losses = os.getenv("TLSTAX_COUNTS_LOSSES") ~= nil
local connects, losses = 0, 0

function thread_init()
   driver = sysbench.sql.driver()
end

local function query_once(connection)
   connection:query("SELECT 1")
   connection:disconnect()
end

function event()
   if not counts_losses then
      local connection = driver:connect()
      connects = connects + 1
      query_once(connection)
      return
   end
   local connected, connection = pcall(driver.connect, driver)
   if connected then
      connects = connects + 1
   end
   if not connected or not pcall(query_once, connection) then
      losses = losses + 1
   end
end

function thread_done()
   tlstax_report_connects(connects)
   if counts_losses then
      io.write(string.format("tlstax thread=%d losses=%d\n", sysbench.tid, losses))
   end
end
