-- SPDX-License-Identifier: GPL-2.0-only
-- One of sysbench's own scripts, with the latency of each event in a histogram for every 50 ms.
-- Each thread writes a file "latencies" with its number: when it began in ns, then for each slot of
-- time the slot's number (two words of 16 bits, the lower one first) and its histogram.

require("tlstax_oltp")

local ffi = require("ffi")
local SLOT_NS, BUCKETS, PER_OCTAVE = 50e6, 480, 24 -- as in switched.py
local MONOTONIC = 1

ffi.cdef([[
   struct tlstax_time { long s; long ns; };
   int clock_gettime(int clock, struct tlstax_time *time);
]])

local time = ffi.new("struct tlstax_time")
local row = ffi.new("uint16_t[?]", 2 + BUCKETS)
local one_event = event
local file, began_ns
local slot = 0

local function now_ns()
   ffi.C.clock_gettime(MONOTONIC, time)
   return tonumber(time.s) * 1e9 + tonumber(time.ns)
end

local function begin(from_ns)
   began_ns = from_ns
   file = assert(io.open(string.format("latencies.%d", sysbench.tid), "wb"))
   file:write(string.format("%.0f\n", began_ns))
end

local function end_slot(next_slot)
   row[0], row[1] = slot % 65536, math.floor(slot / 65536)
   file:write(ffi.string(row, ffi.sizeof(row)))
   file:flush()
   ffi.fill(row, ffi.sizeof(row))
   slot = next_slot
end

function event()
   local from_ns = now_ns()
   one_event()
   local to_ns = now_ns()
   if not file then
      begin(from_ns)
   end
   local now_slot = math.floor((to_ns - began_ns) / SLOT_NS)
   if now_slot ~= slot then
      end_slot(now_slot)
   end
   local bucket = math.floor(math.log((to_ns - from_ns) / 1000) / math.log(2) * PER_OCTAVE)
   local at = 2 + math.max(0, math.min(bucket, BUCKETS - 1))
   row[at] = row[at] + 1
end
