-- SPDX-License-Identifier: GPL-2.0-only
-- Results of 256 KB: see whatif_result.lua beside this file.

RESULT_KB = 256
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "whatif_result.lua")
