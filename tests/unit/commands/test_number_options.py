# SPDX-License-Identifier: GPL-2.0-only
"""Options that take a number say what they take, in words: never the name of a function here."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.commands.attach_request import _client_pid


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("import x.folded --hz often -o x.tlstax", "a frequency is more than 0"),
        ("lab run x.toml --rounds few", "'few' is not a whole number from 1 on"),
        ("lab run x.toml --rounds 0", "'0' is not a whole number from 1 on"),
        ("lab run x.toml --starts ²", "'²' is not a whole number from 1 on"),
        (f"lab run x.toml --starts {'9' * 5000}", "is not a whole number from 1 on"),
        ("attach 1 -o x --max-threads ²", "'²' is not a whole number from 1 to 65536"),
        ("attach 1 -o x --sample-hz ²", "'²' is not a whole number from 0 to 999"),
        (f"attach 1 -o x --sample-hz {'9' * 5000}", "is not a whole number from 0 to 999"),
        ("watch --pid 1 -o x --keep ²d", "'²d' is not a time from 2h to 3650d"),
        ("watch --pid 1 -o x --raw ²G", "'²G' is not a size from 8M to 1024G"),
        ("watch --pid 1 -o x --listen ²", "'²' is not an address"),
        (f"watch --pid 1 -o x --listen {'9' * 5000}", "is not an address"),
        ("pmp 1 --iterations ²", "'²' is not a whole number from 1 to 1000"),
        ("top 1 --count ²", "'²' is not a number from 1 to 1,000,000"),
        ("whatif x --pool ²", "'²' is not a number of queries from 1 to 1,000,000"),
        ("fleet record --hosts x --name x --for ²s", "'²s' is not a time such as 30s or 5m"),
        ("fleet record --hosts x --name x --parallel ²", "'²' is not a number from 1 to 1000"),
        ("fleet whatif --pool ²", "'²' is not a number of queries from 1 to 1,000,000"),
    ],
)
def test_what_is_no_number_is_refused_in_words(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command.split())
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "invalid" not in error


def test_what_is_no_number_may_be_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback of int()."""
    with pytest.raises(TlstaxError, match="No process is called ²"):
        _client_pid("²")
    assert main(["top", str(tmp_path / "²")]) == ExitCode.CAPTURE
    assert "²" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), ("²", None)]
    + [(text, None) for text in ("٣", "-1", "+1", "1_0", " 1", "1.0")],
)
def test_a_whole_number_is_of_digits_alone(text: str, number: int | None) -> None:
    assert whole_number(text) == number
