# SPDX-License-Identifier: GPL-2.0-only
"""Documents as people and other programs read them; nothing is computed here."""
