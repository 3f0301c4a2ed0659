# SPDX-License-Identifier: GPL-2.0-only
"""The display of `tlstax top`: what it reads, its screen, and the terminal's modes."""
