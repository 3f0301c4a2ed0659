# SPDX-License-Identifier: GPL-2.0-only
"""A definition with one mistake, and the error that names it."""

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.probes.definitions import parse_definition


def require_refused(good: str, before: str, after: str, reason: str) -> None:
    """A good definition in which `before` is replaced by `after` is refused for this reason."""
    assert before in good
    with pytest.raises(TlstaxError, match=r"own\.toml") as caught:
        parse_definition(good.replace(before, after, 1).encode(), "own.toml")
    assert reason in caught.value.why
    assert caught.value.exit_code is ExitCode.USAGE
