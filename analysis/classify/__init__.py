# SPDX-License-Identifier: GPL-2.0-only
"""Stacks and functions to categories, causes of waits, and flame graphs."""
