# SPDX-License-Identifier: GPL-2.0-only
"""Reads ELF files and x86-64 machine code: symbols, unwind tables, control and data flow."""
