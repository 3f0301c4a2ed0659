# SPDX-License-Identifier: GPL-2.0-only
"""Many captures as one data set of Parquet files, and questions about all hosts together."""
