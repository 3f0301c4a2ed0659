# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace programs as sources: attach points, rendered programs, their output and its rows."""
