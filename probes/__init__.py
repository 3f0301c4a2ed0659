# SPDX-License-Identifier: GPL-2.0-only
"""What can be probed: definitions of libraries and servers, bpftrace programs, BPF sources."""
