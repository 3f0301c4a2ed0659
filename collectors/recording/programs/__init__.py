# SPDX-License-Identifier: GPL-2.0-only
"""What the ledger's programs keep in the kernel: layouts, names and what they mean."""
