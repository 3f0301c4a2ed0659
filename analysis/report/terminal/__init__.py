# SPDX-License-Identifier: GPL-2.0-only
"""Documents as text for a terminal."""
