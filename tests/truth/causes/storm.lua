-- SPDX-License-Identifier: GPL-2.0-only
-- Each event connects, asks --queries queries and disconnects.

sysbench.cmdline.options = {
   queries = {"Queries on each connection", 1},
}

function thread_init()
   driver = sysbench.sql.driver()
end

function event()
   local connection = driver:connect()
   for _ = 1, sysbench.opt.queries do
      connection:query("SELECT 1")
   end
   connection:disconnect()
end
