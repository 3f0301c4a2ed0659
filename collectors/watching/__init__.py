# SPDX-License-Identifier: GPL-2.0-only
"""Records a server for weeks: through its restarts and upgrades, at a level within a budget."""
