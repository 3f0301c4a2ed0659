# SPDX-License-Identifier: GPL-2.0-only
"""Reading the stacks that other tools print: their phase, their system call, folded lines."""
