-- SPDX-License-Identifier: GPL-2.0-only
-- Prints what a run did as lines that a program reads: `tlstax NAME=VALUE`, times in seconds.
-- sysbench's own text rounds latencies to 10 us, which is a third of a point select.

local NAMES = {"events", "reads", "writes", "other", "errors", "reconnects", "time_total",
               "latency_min", "latency_avg", "latency_max", "latency_pct", "latency_sum"}

sysbench.hooks.report_cumulative = function(stat)
   for _, name in ipairs(NAMES) do
      io.write(string.format("tlstax %s=%.9f\n", name, stat[name]))
   end
end

-- One line per thread: the connections that it opened, counted where they are opened. io.write with
-- its line end in one piece, because print writes it apart and lines of two threads would mix.
function tlstax_report_connects(connects)
   io.write(string.format("tlstax thread=%d connects=%d\n", sysbench.tid, connects))
end
