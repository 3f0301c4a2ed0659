# SPDX-License-Identifier: GPL-2.0-only
"""Database engines that read the data set: DuckDB, ClickHouse and Spark."""
