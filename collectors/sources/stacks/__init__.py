# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of other tools: their phase, their system call, folded lines."""
