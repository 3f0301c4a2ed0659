# SPDX-License-Identifier: GPL-2.0-only
"""Options that take a number say what they take, in words: never the name of a function here."""

import pytest

from tlstax.__main__ import main


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("import x.folded --hz often -o x.tlstax", "a frequency is more than 0"),
        ("lab run x.toml --rounds few", "'few' is not a whole number from 1 on"),
        ("lab run x.toml --rounds 0", "'0' is not a whole number from 1 on"),
        ("lab run x.toml --starts ²", "'²' is not a whole number from 1 on"),
        (f"lab run x.toml --starts {'9' * 5000}", "is not a whole number from 1 on"),
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
