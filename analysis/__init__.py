# SPDX-License-Identifier: GPL-2.0-only
"""Rows of a capture in, findings out: pure functions without clock, files or printing."""
