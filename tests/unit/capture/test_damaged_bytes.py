# SPDX-License-Identifier: GPL-2.0-only
"""Captures with damaged bytes: readable, or refused in one sentence."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlstax import TlstaxError
from tlstax.tests.unit.capture.examples import read_all, refusal, small_capture


class Original(bytes):
    """A capture's bytes, too many to be shown with a failing example."""

    def __repr__(self) -> str:
        return "<a capture>"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return Original(small_capture(tmp_path_factory.mktemp("capture") / "a", 40).read_bytes())


def readable_or_refused(path: Path) -> None:
    """Damage may go unnoticed where it hits data; it must never be a traceback."""
    with contextlib.suppress(TlstaxError):
        read_all(path)


SHARED_DIRECTORY = [HealthCheck.function_scoped_fixture]
# Half of the flips hit the header and the schema, where they hurt most.
PLACES = st.one_of(st.integers(0, 4095), st.integers(0, 1 << 20))


@settings(max_examples=150, deadline=None, suppress_health_check=SHARED_DIRECTORY)
@given(cut=st.integers(1, 1 << 20))
def test_truncated_files_are_refused(original: Original, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(original[: -(cut % len(original)) or -1])
    refusal(path)


@settings(max_examples=400, deadline=None, suppress_health_check=SHARED_DIRECTORY)
@given(flips=st.lists(st.tuples(PLACES, st.integers(1, 255)), min_size=1, max_size=8))
def test_flipped_bytes_never_end_in_a_traceback(
    original: Original, tmp_path: Path, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(original)
    for place, bits in flips:
        content[place % len(content)] ^= bits
    path = tmp_path / "a"
    path.write_bytes(content)
    readable_or_refused(path)


@settings(max_examples=100, deadline=None, suppress_health_check=SHARED_DIRECTORY)
@given(journal=st.binary(max_size=2000), size=st.integers(0, 200_000))
def test_a_foreign_journal_never_ends_in_a_traceback(
    original: Original, tmp_path: Path, journal: bytes, size: int
) -> None:
    path = tmp_path / "a"
    path.write_bytes(original[:size])
    Path(f"{path}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + journal)
    readable_or_refused(path)
