# SPDX-License-Identifier: GPL-2.0-only
"""Features of this host, the cost of a probe on it, clocks, and child processes."""
