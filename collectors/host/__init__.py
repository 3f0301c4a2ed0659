# SPDX-License-Identifier: GPL-2.0-only
"""What this host allows and what a probe costs on it: features, prices, clocks, child processes."""
