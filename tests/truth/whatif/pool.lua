-- SPDX-License-Identifier: GPL-2.0-only
-- The storm's query on connections that each ask QUERIES of them: what pooling makes of a storm.

require("tlstax_report")
require("tlstax_gate")

local QUERIES = 20
local connects, asked = 0, 0

function thread_init()
   driver = sysbench.sql.driver()
end

function event()
   if not connection then
      connection = driver:connect()
      connects = connects + 1
   end
   connection:query("SELECT 1")
   asked = asked + 1
   if asked % QUERIES == 0 then
      connection:disconnect()
      connection = nil
   end
end

function thread_done()
   if connection then
      connection:disconnect()
   end
   tlstax_report_connects(connects)
end
