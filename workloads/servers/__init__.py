# SPDX-License-Identifier: GPL-2.0-only
"""Servers of a laboratory: found or installed, configured, started, supervised, removed."""
