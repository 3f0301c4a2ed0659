# SPDX-License-Identifier: GPL-2.0-only
"""What must hold of a recording that a suspend of its host came into (suspend.py records it)."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.analysis.document import closing
from tlstax.analysis.rows.tables import Tables, load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.truth.books import told_by_probes

RECORD_S: Final = 20
SLEPT_LEAST_S, APART_S = 2.0, 1.5
"""The date is kept in whole seconds while the host is suspended."""
AFTER_MOST_S: Final = 5.0
SHARE, NS = 0.05, 10_000_000
SAMPLED_LEAST: Final = 0.5
SECOND: Final = 1_000_000_000


class Clocks(NamedTuple):
    """Those of the guest, once."""

    running_s: float  # with the suspended time
    monotonic_ns: int
    date_s: int

    @classmethod
    def of(cls, path: Path) -> "Clocks":
        running, monotonic, date = path.read_text().split()
        return cls(float(running), int(monotonic), int(date))


def judge(folder: Path) -> list[str]:
    """What is wrong of the recording that a guest left in `folder`; prints its figures."""
    said = (folder / "said").read_text().strip()
    status = (folder / "status").read_text().strip()
    capture = folder / "suspended.tlstax"
    try:
        content = io.BytesIO((folder / "stream").read_bytes())
        import_stream(content, "stream", capture, overwrite=True)
    except TlstaxError as error:
        return [f"{said}; status {status}; {error}"]
    with CaptureReader.open(capture) as reader:
        tables = load(reader)
    before, after = Clocks.of(folder / "before"), Clocks.of(folder / "after")
    slept_s = after.running_s - before.running_s - (after.monotonic_ns - before.monotonic_ns) / 1e9
    print(
        f"suspended for {slept_s:.1f} s; the recorder said: {said}; {closing.close(tables).summary}"
    )
    wrong = [] if status == "0" else [f"the recorder ended with status {status}"]
    wrong += [] if slept_s > SLEPT_LEAST_S else [f"suspended for {slept_s:.1f} s: no test"]
    wrong += windows(tables)
    wrong += told(tables, slept_s)
    wrong += closed(tables)
    wrong += books(tables, folder)
    wrong += sampled(tables, after.monotonic_ns)
    return wrong


def windows(tables: Tables) -> Iterator[str]:
    """`--for` is met without the suspended time, which is in no window."""
    lengths = [window.end_ns - window.start_ns for window in tables.windows]
    if not all(ns > 0 for ns in lengths):
        yield f"windows of {sorted(lengths)[:3]} ns"
    if any(one.end_ns != two.start_ns for one, two in pairwise(tables.windows)):
        yield "windows do not follow each other"
    length_s = sum(lengths) / SECOND
    if not RECORD_S <= length_s <= RECORD_S + AFTER_MOST_S:
        yield f"{length_s:.1f} s recorded instead of {RECORD_S} s"


def told(tables: Tables, slept_s: float) -> Iterator[str]:
    """The capture says for how long it was suspended, once."""
    words = [gap.consequence for gap in tables.gaps if "suspended" in gap.consequence]
    found = [float(text.split("suspended for ")[1].split()[0]) for text in words]
    print("told:", *words)
    if len(found) != 1 or abs(found[0] - slept_s) > APART_S:
        yield f"the capture tells of {found} s suspended, the guest's clocks of {slept_s:.1f} s"


def closed(tables: Tables) -> Iterator[str]:
    """The figures of closure hold, and each thread has all its time and no more.

    An emulated CPU that waits for the host's loses samples: they are compared in `sampled`.
    """
    for figure in closing.close(tables).figures:
        if figure.verdict == "failed" and figure.key != "samples":
            yield f"closure, {figure.name}: {figure.value} against {figure.reference}"
    span_ns = tables.windows[-1].end_ns - tables.windows[0].start_ns
    spent: Counter[int] = Counter()
    for row in tables.ledger:
        spent[row.thread_id] += row.time_ns
    for thread, ns in spent.items():
        if ns > span_ns:
            yield f"thread {thread} has {ns / 1e9:.2f} s of {span_ns / 1e9:.2f} s"
    if waits := [row.time_ns for row in tables.waits if row.time_ns > span_ns * len(spent)]:
        yield f"waits of {waits} ns"


def books(tables: Tables, folder: Path) -> Iterator[str]:
    """The ledger has of the program's thread what its books have.

    While it was frozen it waited: in its books for what it awaited, in the ledger for anything.
    """
    lines = [json.loads(line) for line in (folder / "books").read_text().splitlines()]
    threads: list[dict[str, Any]] = [told_by_probes(one) for one in lines if "cells" in one]
    if len(threads) != 1:
        yield "the program did not come to its end"
        return
    (thread,) = (one.thread_id for one in tables.threads if one.tid == threads[0]["tid"])
    told: Counter[str] = Counter(threads[0]["cells"])
    found: Counter[str] = Counter()
    for row in tables.ledger:
        if row.thread_id == thread and row.phase != "background":
            found[f"{row.phase}/{row.state}"] += row.time_ns
    for one in (told, found):
        for cell in list(one):
            if not cell.endswith("/on_cpu"):
                one["waits"] += one.pop(cell)
    for cell in sorted(told.keys() | found.keys()):
        text = f"{cell}: {told[cell] / 1e6:.1f} ms in its books, {found[cell] / 1e6:.1f} ms found"
        print(text)
        if abs(told[cell] - found[cell]) > SHARE * told[cell] + NS:
            yield text


def sampled(tables: Tables, after_ns: int) -> Iterator[str]:
    """Every CPU on which the program ran is sampled after the suspend as before."""
    later = {window.window_id for window in tables.windows if window.start_ns > after_ns}
    ran_ns: Counter[tuple[int, bool]] = Counter()
    count: Counter[tuple[int, bool]] = Counter()
    for row in tables.cpu_clocks:
        ran_ns[row.cpu_id, row.window_id in later] += row.target_cpu_ns
        count[row.cpu_id, row.window_id in later] += row.sample_count
    for cpu in sorted({row.cpu_id for row in tables.cpu_clocks}):
        rates = [SECOND * count[cpu, one] / max(1, ran_ns[cpu, one]) for one in (False, True)]
        print(f"CPU {cpu}: {rates[0]:.0f} samples a second of CPU time, then {rates[1]:.0f}")
        if ran_ns[cpu, True] > SECOND // 2 and rates[1] < SAMPLED_LEAST * rates[0]:
            yield f"CPU {cpu} is not sampled as before: {rates[1]:.0f} of {rates[0]:.0f} a second"
