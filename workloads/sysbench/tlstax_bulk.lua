-- SPDX-License-Identifier: GPL-2.0-only
-- Pooled: each event is one query whose result is one long text, on a connection that stays open. It
-- touches no table: what it costs is sending the text, and with --mysql-ssl=on encrypting it.

require("tlstax_report")
require("tlstax_gate")

local BYTES = 256 * 1024 -- far above one record (16 KB), far below the smallest max_allowed_packet

function thread_init()
   driver = sysbench.sql.driver()
   connection = driver:connect()
   tlstax_report_connects(1)
end

function event()
   connection:query("SELECT REPEAT('x', " .. BYTES .. ")")
end

function thread_done()
   connection:disconnect()
end
