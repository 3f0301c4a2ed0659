# SPDX-License-Identifier: GPL-2.0-only
"""Experiments of many runs: matrices, and TLS libraries side by side."""
