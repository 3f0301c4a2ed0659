# SPDX-License-Identifier: GPL-2.0-only
"""Rows of the data set from the rows of one capture."""
