-- SPDX-License-Identifier: GPL-2.0-only
-- Pooled: each event adds a row, and the client sends them by the packet (512 KB), each thread to a
-- table of its own. The same as sysbench's bulk_insert, whose tables have the names of those that the
-- other scenarios read.

require("tlstax_report")
require("tlstax_gate")

local row = 0

local function table_of(thread)
   return "tlstax_bulk" .. (thread % sysbench.opt.threads + 1)
end

function thread_init()
   connection = sysbench.sql.driver():connect()
   tlstax_report_connects(1)
end

function event()
   if row == 0 then
      connection:bulk_insert_init("INSERT INTO " .. table_of(sysbench.tid) .. " VALUES")
   end
   row = row + 1
   connection:bulk_insert_next("(" .. row .. "," .. row .. ")")
end

function thread_done()
   connection:bulk_insert_done()
   connection:disconnect()
end

function prepare()
   local own = sysbench.sql.driver():connect()
   for thread = 0, sysbench.opt.threads - 1 do
      own:query("CREATE TABLE " .. table_of(thread) ..
                " (id INTEGER NOT NULL PRIMARY KEY, k INTEGER DEFAULT 0 NOT NULL) ENGINE=InnoDB")
   end
   own:disconnect()
end

function cleanup()
   local own = sysbench.sql.driver():connect()
   for thread = 0, sysbench.opt.threads - 1 do
      own:query("DROP TABLE IF EXISTS " .. table_of(thread))
   end
   own:disconnect()
end
