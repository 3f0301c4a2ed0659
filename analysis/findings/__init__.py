# SPDX-License-Identifier: GPL-2.0-only
"""Causes that a capture shows: metrics of its windows, and declarative rules over them."""
