-- SPDX-License-Identifier: GPL-2.0-only
-- Each event changes the one row that every other thread changes, and keeps it for --hold-ms.

sysbench.cmdline.options = {
   hold_ms = {"How long the row is kept", 5},
}

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
end

function event()
   connection:query("BEGIN")
   connection:query("UPDATE sbtest1 SET k = k + 1 WHERE id = 1")
   connection:query(string.format("DO SLEEP(%f)", sysbench.opt.hold_ms / 1000))
   connection:query("COMMIT")
end

function thread_done()
   connection:disconnect()
end
