# SPDX-License-Identifier: GPL-2.0-only
"""Files of the data set: where they are, how they are written, merged and chosen."""
