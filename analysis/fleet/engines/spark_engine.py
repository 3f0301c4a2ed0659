# SPDX-License-Identifier: GPL-2.0-only
"""Spark in local mode (the Python package pyspark, which needs Java), over the same files."""

import os
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.engines.engine import (
    BUCKET_COLUMNS,
    BUCKETS,
    OBSERVED_LATENCIES,
    Engine,
    Views,
)
from tlstax.analysis.fleet.store.parquet_files import arrow, missing_package, schema_of
from tlstax.collectors.capture.schema import table_name

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
}


class Spark(Engine):
    """A local session with a temporary view of each table."""

    name = "spark"

    def __init__(self, session: Any) -> None:
        """Use `open_views`."""
        self._session = session

    def query(self, sql: str) -> Any:
        """See Engine."""
        errors = arrow("pyspark.errors")
        try:
            return self._session.sql(sql).toArrow()
        except errors.PySparkException as error:
            raise self.refused(error) from error

    def close(self) -> None:
        """See Engine."""
        self._session.stop()


def open_views(views: Views) -> Spark:
    """A session that reads the data set. Raises TlstaxError (HOST) without Spark or Java."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
        from pyspark.sql.pandas.types import from_arrow_schema
    except ImportError as error:
        raise missing_package("pyspark", "engines") from error
    builder = SparkSession.builder.master(f"local[{len(os.sched_getaffinity(0))}]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    try:
        session = builder.appName("tlstax fleet").getOrCreate()
    except PySparkRuntimeError as error:
        raise TlstaxError(
            "cannot start Spark",
            "its Java program did not start",
            "Install Java 17 or later and set JAVA_HOME, or use another --engine",
            ExitCode.HOST,
        ) from error
    for table, files in views.files.items():
        shape = from_arrow_schema(schema_of(table))
        names = [str(path.resolve()) for path in files]
        rows = (
            session.read.schema(shape).parquet(*names)
            if names
            else (session.createDataFrame([], shape))
        )
        if table._field_defaults:  # files of earlier versions lack these columns
            rows = rows.fillna(table._field_defaults)
        rows.createOrReplaceTempView(table_name(table))
    if views.has_buckets:
        names_of = ", ".join(BUCKET_COLUMNS)
        session.sql(
            f"SELECT {names_of}, first_bucket + place AS bucket, one AS ended_count "
            f"FROM ({OBSERVED_LATENCIES}) observed "
            "LATERAL VIEW posexplode(counts) buckets AS place, one"
        ).createOrReplaceTempView(BUCKETS)
    return Spark(session)
