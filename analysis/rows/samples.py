# SPDX-License-Identifier: GPL-2.0-only
"""CPU samples by column: a long recording has millions of rows, but few different places."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, pairwise
from typing import Final, cast, overload

import numpy as np
from numpy.typing import NDArray

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import SampleStack

Place = tuple[str, int, int | None, int | None]
"""Phase, system call and stacks of a sample."""
MOST: Final = 1 << 53
"""Samples of a capture: sums are exact below it."""
_CHUNK: Final = 1 << 16


class Samples(Sequence[SampleStack]):
    """Rows of `sample_stack`, 20 bytes each; what many rows have in common is looked at once."""

    def __init__(
        self,
        places: Sequence[Place],
        windows: NDArray[np.int64],
        numbers: NDArray[np.uint32],
        counts: NDArray[np.int64],
    ) -> None:
        """Use `load` or `columns_of`. `numbers` are positions in `places`."""
        self.places = places
        self._windows, self._numbers, self._counts = windows, numbers, counts

    @classmethod
    def load(cls, reader: CaptureReader) -> "Samples":
        """All rows of a capture. Raises TlstaxError (CAPTURE) if it is damaged."""
        made = cls._from(reader.chunks(SampleStack))
        if made.total >= MOST:
            raise reader.damaged("sample_stack counts more samples than can be taken")
        return made

    @classmethod
    def _from(cls, chunks: Iterable[Sequence[tuple[object, ...]]]) -> "Samples":
        known: defaultdict[Place, int] = defaultdict(count().__next__)
        windows, numbers, counts = array("q"), array("I"), array("q")
        for chunk in chunks:
            window, phase, syscall, user, kernel, sampled = zip(*chunk, strict=True)
            windows.extend(cast(Iterable[int], window))
            counts.extend(cast(Iterable[int], sampled))
            places = cast(Iterator[Place], zip(phase, syscall, user, kernel, strict=True))
            numbers.extend(map(known.__getitem__, places))
        return cls(
            tuple(known),
            np.asarray(windows, np.int64),
            np.asarray(numbers, np.uint32),
            np.asarray(counts, np.int64),
        )

    @property
    def total(self) -> int:
        """Samples of all rows; not exact, but not below MOST, if there are that many."""
        exact = float(self._counts.sum(dtype=np.float64))
        return int(self._counts.sum()) if abs(exact) < MOST else round(exact)

    def of_windows(self, window_ids: Collection[int]) -> "Samples":
        """The rows of these windows."""
        chosen = self._chosen(window_ids)
        if chosen.all():
            return self
        parts = self._windows[chosen], self._numbers[chosen], self._counts[chosen]
        return Samples(self.places, *parts)

    def in_phases(self, phase_of: Callable[[Place], str]) -> "Samples":
        """The same rows in the phases that are told by their places."""
        known: defaultdict[Place, int] = defaultdict(count().__next__)
        numbers = [known[phase_of(place), *place[1:]] for place in self.places]
        moved = np.array(numbers, np.uint32)[self._numbers]
        return Samples(tuple(known), self._windows, moved, self._counts)

    def by_place(self, window_ids: Collection[int] | None = None) -> dict[Place, int]:
        """Samples by place, in all windows or in these."""
        numbers, counts = self._numbers, self._counts
        if window_ids is not None:
            chosen = self._chosen(window_ids)
            numbers, counts = numbers[chosen], counts[chosen]
        sums = np.bincount(numbers, weights=counts, minlength=len(self.places))
        return {
            self.places[number]: round(sums[number]) for number in np.flatnonzero(sums > 0).tolist()
        }

    def by_window(self, labels: Mapping[Place, int]) -> dict[int, dict[int, int]]:
        """Samples by window, then by the label of their place; others are left out."""
        of_place = np.array([labels.get(place, -1) for place in self.places], np.int64)
        mine = of_place[self._numbers] if len(of_place) else np.empty(0, np.int64)
        changes = np.flatnonzero(np.diff(self._windows)) + 1  # rows of a window are together
        made: dict[int, dict[int, int]] = {}
        for start, end in pairwise((0, *changes.tolist(), len(mine))):
            sums = _sums(mine[start:end], self._counts[start:end])
            if sums:
                window = made.setdefault(int(self._windows[start]), {})
                for label, sampled in sums:
                    window[label] = window.get(label, 0) + sampled
        return made

    def _chosen(self, window_ids: Collection[int]) -> NDArray[np.bool_]:
        return np.isin(self._windows, np.fromiter(window_ids, np.int64, len(window_ids)))

    def __len__(self) -> int:
        """Rows."""
        return len(self._counts)

    @overload
    def __getitem__(self, at: int) -> SampleStack: ...
    @overload
    def __getitem__(self, at: slice) -> "list[SampleStack]": ...
    def __getitem__(self, at: int | slice) -> "SampleStack | list[SampleStack]":
        """A row, or some."""
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        phase, syscall, user, kernel = self.places[self._numbers[at]]
        window_id, sampled = int(self._windows[at]), int(self._counts[at])
        return SampleStack(window_id, phase, syscall, user, kernel, sampled)

    def __iter__(self) -> Iterator[SampleStack]:
        """Row by row, in the order of the capture."""
        for at in range(0, len(self), _CHUNK):
            part = slice(at, at + _CHUNK)
            columns = (self._windows[part], self._numbers[part], self._counts[part])
            for window_id, number, sampled in zip(*(c.tolist() for c in columns), strict=True):
                phase, syscall, user, kernel = self.places[number]
                yield SampleStack(window_id, phase, syscall, user, kernel, sampled)


def _sums(labels: NDArray[np.int64], counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(label, sum of its counts) in order of labels; without labels below 0 and sums below 1."""
    if not len(labels):
        return []
    if labels.max() >= 2 * len(labels):  # a table of all labels would be mostly empty
        labels, positions = np.unique(labels, return_inverse=True)
        sums = np.bincount(positions, weights=counts)
    else:
        sums = np.bincount(labels + 1, weights=counts)
        labels = np.arange(-1, len(sums) - 1)
    chosen = (labels >= 0) & (sums > 0)
    found = zip(labels[chosen].tolist(), sums[chosen].tolist(), strict=True)
    return [(label, round(sampled)) for label, sampled in found]


def columns_of(rows: Iterable[SampleStack]) -> Samples:
    """Rows by column."""
    if isinstance(rows, Samples):
        return rows
    waiting = iter(rows)
    return Samples._from(iter(lambda: list(islice(waiting, _CHUNK)), []))
