# SPDX-License-Identifier: GPL-2.0-only
"""The canary's figures, and what it refuses."""

import os
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.workloads.canary import Access, Pair, summarize
from tlstax.workloads.canary_command import text_of

MS = 1_000_000


def pairs(count: int, added_ns: int) -> list[Pair]:
    """Pairs that a busy server makes slow from time to time, both connections of them."""
    slow = [MS * (1 + at % 5) for at in range(count)]
    return [Pair(one, one + added_ns + at * 1000) for at, one in enumerate(slow)]


def test_the_difference_is_that_of_pairs_and_has_an_interval_from_eight_on() -> None:
    found = summarize(pairs(40, 3 * MS), 2.0)
    assert 2.9 * MS < found.low_ns <= found.difference_ns <= found.high_ns < 3.1 * MS
    assert found.has_interval
    assert "95 % interval of 40 pairs" in text_of(found)
    assert "range of 4 pairs" in text_of(summarize(pairs(4, 3 * MS), 2.0))


def test_no_difference_is_not_called_one() -> None:
    mixed = [Pair(MS, MS + (at % 3 - 1) * 1000) for at in range(30)]
    assert text_of(summarize(mixed, 2.0)).startswith("No difference seen")


def test_the_cost_is_bounded_by_the_time_of_the_connections() -> None:
    assert summarize([Pair(2 * MS, 8 * MS)] * 10, 2.0).busy_share == pytest.approx(0.01)


def test_no_user_and_no_password_is_an_argument(tmp_path: Path) -> None:
    file = tmp_path / "account.cnf"
    file.write_text("[client]\nuser=u\npassword=secret\n")
    for arm in ("plaintext", "tls"):
        command = Access(option_file=file, host="db1", port=3307).command(arm)
        assert "secret" not in " ".join(command)
        assert {"--protocol=TCP", "--host=db1", "--port=3307"} <= {*command}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "6"], "between 1 and 5"),
        (["--for", "1"], "between 2 and 86400"),
        (["--server", "db1:x"], "no port"),
        (["--option-file", "missing.cnf"], "no file"),
    ],
)
def test_odd_arguments_are_refused(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "account.cnf"
    file.write_text("[client]\n")
    file.chmod(0o600)
    given = ["canary", "--option-file", str(file), *arguments]
    assert main(given) != 0
    assert words in capsys.readouterr().err


def test_a_file_that_others_may_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "account.cnf"
    file.touch()
    os.chmod(file, 0o644)
    assert main(["canary", "--option-file", str(file)]) != 0
    assert "chmod 600" in capsys.readouterr().err
