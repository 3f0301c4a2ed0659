# SPDX-License-Identifier: GPL-2.0-only
"""`perf record` as a source: the child process, its samples, and their rows in a capture."""
