-- SPDX-License-Identifier: GPL-2.0-only
-- Before the first thread is made, waits for a line (or the end) of standard input: a recorder can
-- attach to this process while it does nothing. Require it last: it wraps the script's own init.

local init_of_script = init

function init()
   if init_of_script then
      init_of_script()
   end
   io.write("tlstax gate\n")
   io.flush()
   io.read("*l")
end
