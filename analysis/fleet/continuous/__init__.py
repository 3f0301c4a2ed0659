# SPDX-License-Identifier: GPL-2.0-only
"""Rollups of a recording that goes on for weeks, straight into the data set."""
