# SPDX-License-Identifier: GPL-2.0-only
"""Puts all of the above together into one document, with its sentences."""
