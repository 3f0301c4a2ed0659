# SPDX-License-Identifier: GPL-2.0-only
"""Arms, rounds and recordings held against each other, with intervals."""
