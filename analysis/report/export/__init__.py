# SPDX-License-Identifier: GPL-2.0-only
"""Documents and stacks in the formats of other tools."""
