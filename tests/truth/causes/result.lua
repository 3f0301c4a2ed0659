-- SPDX-License-Identifier: GPL-2.0-only
-- Each event is one query with a result of --result-bytes bytes, in one text or many rows;
-- after --queries of them it connects anew (0: never).

sysbench.cmdline.options = {
   result_bytes = {"Bytes of a result", 262144},
   row_bytes = {"Bytes of each of its rows; 0: it is one text", 0},
   queries = {"Queries on each connection; 0: all", 0},
}

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
   asked = 0
   local size, row = sysbench.opt.result_bytes, sysbench.opt.row_bytes
   if row > 0 then
      query = string.format("SELECT REPEAT('x', %d) FROM seq_1_to_%d", row, size / row)
   else
      query = string.format("SELECT REPEAT('x', %d)", size)
   end
end

function event()
   if sysbench.opt.queries > 0 and asked >= sysbench.opt.queries then
      connection:disconnect()
      connection = driver:connect()
      asked = 0
   end
   asked = asked + 1
   connection:query(query)
end

function thread_done()
   connection:disconnect()
end
