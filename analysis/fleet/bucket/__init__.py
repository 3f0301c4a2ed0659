# SPDX-License-Identifier: GPL-2.0-only
"""A data set in an S3-compatible store: its objects, which count, local copies for engines."""
