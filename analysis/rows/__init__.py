# SPDX-License-Identifier: GPL-2.0-only
"""Rows of a capture as typed tables: ledger sums, handshakes, latencies, series of counters."""
