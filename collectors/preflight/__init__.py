# SPDX-License-Identifier: GPL-2.0-only
"""Hazards of this kernel and this target, and the safe variant of each."""
