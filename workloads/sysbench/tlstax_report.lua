-- SPDX-License-Identifier: GPL-2.0-only
-- Prints what a run did as lines that a program reads: `tlstax NAME=VALUE`, times in seconds.
-- sysbench's own text rounds latencies to 10 us, which is a third of a point select.

local NAMES = {"events", "reads", "writes", "other", "errors", "reconnects", "time_total",
               "latency_min", "latency_avg", "latency_max", "latency_pct", "latency_sum"}

sysbench.hooks.report_cumulative = function(stat)
   for _, name in ipairs(NAMES) do
      print(string.format("tlstax %s=%.9f", name, stat[name]))
   end
end

-- One line per thread: the connections that it opened, counted where they are opened.
function tlstax_report_connects(connects)
   print(string.format("tlstax thread=%d connects=%d", sysbench.tid, connects))
end
