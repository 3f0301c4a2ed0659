# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the outcomes of trials until the next boot: preflight.json in tlstax.cache_directory()."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import __version__, cache_directory
from tlstax.collectors.host.kept_file import keep_file, read_kept
from tlstax.collectors.preflight.trial_child import Outcome, State

FILE: Final = "preflight.json"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def load() -> dict[str, Outcome] | None:
    """The outcomes of this boot, for this user and this version of tlstax; None if absent."""
    try:
        content = json.loads(read_kept(cache_directory() / FILE))
        if content["key"] != _key():
            return None
        return {
            name: Outcome(State(state), str(found))
            for name, (state, found) in content["outcomes"].items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def save(outcomes: Mapping[str, Outcome]) -> None:
    """Keep them, unless one is unknown: that may be better the next time."""
    if any(outcome.state == State.UNKNOWN for outcome in outcomes.values()):
        return
    with suppress(OSError):
        content = json.dumps({"key": _key(), "outcomes": outcomes})
        keep_file(cache_directory() / FILE, content.encode(), folder_mode=0o755)


def _key() -> str:
    names = os.uname()
    boot = _BOOT.read_text(encoding="ascii").strip()
    return f"{__version__} {boot} {names.release} {names.version} uid {os.geteuid()}"
