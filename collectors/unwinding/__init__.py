# SPDX-License-Identifier: GPL-2.0-only
"""How to find the caller of any instruction: compact tables built from call frame information."""
