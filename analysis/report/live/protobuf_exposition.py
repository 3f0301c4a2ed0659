# SPDX-License-Identifier: GPL-2.0-only
"""Metrics in Prometheus's protobuf format, the only one that has native histograms.

prometheus_client writes texts only, so the messages of io.prometheus.client are declared here, as
far as they are used: docs at prometheus.io, "Exposition formats".

A native histogram has buckets at powers of two of a second, the data set at powers of two of a
nanosecond. The bounds do not meet, so each count goes to the two buckets that its bucket overlaps,
by their shares of it: a time may stand in the bucket beside its own, 19 % away. Sums and counts are
exact, and no bucket ever shrinks, which Prometheus would take for a restart.
"""

import functools
import importlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.histograms import LEAST, SCALE

CONTENT_TYPE: Final = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
_WORDS: Final = frozenset(CONTENT_TYPE.split("; "))
_WEIGHT: Final = re.compile(r"[01](\.\d{0,3})?", re.ASCII)
_STEPS: Final = 1 << SCALE
_SECOND: Final = math.log2(SECOND_NS) * _STEPS
"""Where a second lies among the buckets of the data set."""
_FIRST: Final = math.floor(_SECOND)
_EARLY: Final = _SECOND - _FIRST
"""Share of a bucket that lies in the earlier one of the two: by the logarithm of the time."""
_ZERO_S: Final = 1e-9
"""What took no longer counts as 0; it also marks an empty histogram as a native one."""
_KINDS: Final = {"counter": 0, "gauge": 1, "info": 1, "unknown": 3, "histogram": 4}
_MESSAGES: Final[Mapping[str, tuple[tuple[int, str, str], ...]]] = {
    "LabelPair": ((1, "name", "string"), (2, "value", "string")),
    "Number": ((1, "value", "double"),),
    "BucketSpan": ((1, "offset", "sint32"), (2, "length", "uint32")),
    "Bucket": ((1, "cumulative_count", "uint64"), (2, "upper_bound", "double")),
    "Histogram": (
        (1, "sample_count", "uint64"),
        (2, "sample_sum", "double"),
        (3, "bucket", "Bucket"),
        (5, "schema", "sint32"),
        (6, "zero_threshold", "double"),
        (7, "zero_count", "uint64"),
        (12, "positive_span", "BucketSpan"),
        (13, "positive_delta", "sint64"),
    ),
    "Metric": (
        (1, "label", "LabelPair"),
        (2, "gauge", "Number"),
        (3, "counter", "Number"),
        (5, "untyped", "Number"),
        (7, "histogram", "Histogram"),
    ),
    "MetricFamily": (
        (1, "name", "string"),
        (2, "help", "string"),
        (3, "type", "int32"),
        (4, "metric", "Metric"),
    ),
}
_REPEATED: Final = {"bucket", "positive_span", "positive_delta", "label", "metric"}


def is_wanted(accept: str) -> bool:
    """Whether a scraper likes this format best, by its Accept header; and protobuf is installed."""
    weight, is_protobuf = max(_choices(accept), default=(0.0, False))
    return weight > 0 and is_protobuf and _family() is not None


def _choices(accept: str) -> Iterator[tuple[float, bool]]:
    """Weight of each type, and whether it is this one; that is the greatest of equal weights."""
    for choice in accept.split(","):
        words = [word.strip() for word in choice.split(";")]
        weight = next((word.removeprefix("q=") for word in words if word.startswith("q=")), "1")
        yield float(weight) if _WEIGHT.fullmatch(weight) else 0.0, set(words) >= _WORDS


def render(families: Iterable[Any]) -> bytes:
    """All families. A histogram with the attribute `native_counts` is a native one, too.

    It has the counts by bucket of the data set, for each of its points by its labels' values.
    """
    return b"".join(_delimited(_rendered(family)) for family in families)


def _rendered(family: Any) -> Any:
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    made = _family()(name=family.name + suffix, help=family.documentation, type=_KINDS[family.type])
    if family.type == "histogram":
        counts = getattr(family, "native_counts", {})
        for labels, samples in _points(family).items():
            metric = made.metric.add()
            for name, value in labels:
                metric.label.add(name=name, value=value)
            _fill(metric.histogram, samples, counts.get(tuple(value for _, value in labels)))
        return made
    field = {0: "counter", 1: "gauge", 3: "untyped"}[made.type]
    for sample in family.samples:
        metric = made.metric.add()
        for name, value in sample.labels.items():
            metric.label.add(name=name, value=value)
        getattr(metric, field).value = sample.value
    return made


def _points(family: Any) -> dict[tuple[tuple[str, str], ...], list[Any]]:
    """The samples of each histogram of a family, by its labels in their order."""
    found: dict[tuple[tuple[str, str], ...], list[Any]] = defaultdict(list)
    for sample in family.samples:
        found[tuple((name, of) for name, of in sample.labels.items() if name != "le")].append(
            sample
        )
    return found


def _fill(histogram: Any, samples: Iterable[Any], counts: Mapping[int, int] | None) -> None:
    """The classic buckets, and the native ones if their counts are known."""
    for sample in samples:
        if sample.name.endswith("_sum"):
            histogram.sample_sum = sample.value
        elif sample.name.endswith("_count"):
            histogram.sample_count = int(sample.value)
        else:
            bound = float(sample.labels["le"])
            histogram.bucket.add(cumulative_count=int(sample.value), upper_bound=bound)
    if counts is None:
        return
    histogram.schema, histogram.zero_threshold = SCALE, _ZERO_S
    histogram.zero_count = counts.get(LEAST, 0)
    before_index, before_count = 0, 0
    for index, count in sorted(in_seconds(counts).items()):
        if not histogram.positive_span or index != before_index + 1:
            gap = index - before_index - 1 if histogram.positive_span else index
            histogram.positive_span.add(offset=gap, length=0)
        histogram.positive_span[-1].length += 1
        histogram.positive_delta.append(count - before_count)
        before_index, before_count = index, count


def in_seconds(counts: Mapping[int, int]) -> dict[int, int]:
    """Counts by Prometheus's index: bucket i ends at 2^(i / 4) s, inclusive."""
    made: dict[int, int] = defaultdict(int)
    for index, count in counts.items():
        if index == LEAST:
            continue  # up to a nanosecond, which is 0 here
        early = math.floor(count * _EARLY)
        made[index - _FIRST] += early
        made[index - _FIRST + 1] += count - early
    return {index: count for index, count in made.items() if count}


def _delimited(message: Any) -> bytes:
    """A message behind its length, as a varint."""
    content = bytes(message.SerializeToString())
    size, prefix = len(content), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes([size]) + content


@functools.cache
def _family() -> Any:
    """The class of MetricFamily; None where protobuf is not installed."""
    try:
        descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
        pools = importlib.import_module("google.protobuf.descriptor_pool")
        factory = importlib.import_module("google.protobuf.message_factory")
    except ImportError:
        return None
    fields = descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(name="metrics.proto", package="tlstax", syntax="proto2")
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, member, kind in members:
            field = message.field.add(name=member, number=number)
            label = "LABEL_REPEATED" if member in _REPEATED else "LABEL_OPTIONAL"
            field.label = getattr(fields, label)
            if kind in _MESSAGES:
                field.type, field.type_name = fields.TYPE_MESSAGE, f".tlstax.{kind}"
            else:
                field.type = getattr(fields, f"TYPE_{kind.upper()}")
    pool = pools.DescriptorPool()
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName("tlstax.MetricFamily"))
