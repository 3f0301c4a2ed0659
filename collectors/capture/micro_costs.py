# SPDX-License-Identifier: GPL-2.0-only
"""Cost of single TLS operations on a host: measured by collectors, used by analysis.

Times are CPU time of one thread in nanoseconds: the median of batches, with the 95 % interval of
that median. Stored as JSON, so that costs measured on one host can be used on another.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.files import is_stream, put_whole, write_stream

VERSION: Final = 2
_LENGTH_MOST: Final = 1 << 24  # characters: /dev/zero has no end
_NS_MOST: Final = 1e18


@dataclass(frozen=True)
class Cost:
    """CPU time of one operation."""

    value_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class HandshakeCost:
    """A handshake in memory, without a network: what both sides compute."""

    server: Cost
    client: Cost


@dataclass(frozen=True)
class KeyCosts:
    """Costs that depend on the kind of key. The client sends a certificate if `mutual`."""

    sign: Cost
    verify: Cost
    full: HandshakeCost | None = None
    resumed: HandshakeCost | None = None
    client_setup: Cost | None = None
    """A new client context with its CA, certificate and key, as clients create for each connect."""


@dataclass(frozen=True)
class RecordCosts:
    """A TLS record with one bulk cipher, by bytes of its content, with its framing.

    The loop's call overhead is included; it is the same for each cipher.
    """

    sent: Mapping[int, Cost]
    received: Mapping[int, Cost]


@dataclass(frozen=True)
class MicroCosts:
    """The costs of one TLS library on one host."""

    library: str  # 'OpenSSL 3.0.19'
    hostname: str
    cpu_model: str
    tls_version: str
    mutual: bool
    keygen: Cost
    derive: Cost
    keys: Mapping[str, KeyCosts]
    records: Mapping[str, RecordCosts] = field(default_factory=dict)
    """By name of the bulk cipher."""


Measure = Callable[[Sequence[str], Sequence[str], bool, str, Sequence[str]], MicroCosts]
"""Measures: kinds of key to sign with, kinds to shake hands with, mutual, TLS version, ciphers."""


def save(costs: MicroCosts, path: Path) -> None:
    """Write as JSON, or leave what is there. Raises TlstaxError (IO)."""
    try:
        text = json.dumps({"version": VERSION, **asdict(costs)}, indent=1)
        content = f"{text}\n".encode()
        if is_stream(path):
            write_stream(path, content)
        elif path.is_symlink():
            path.write_bytes(content)
        else:
            put_whole(path, content, mode=None)
    except OSError as error:
        raise TlstaxError(
            f"cannot write {path}", str(error.strerror), "Choose another file", ExitCode.IO
        ) from error


def load(path: Path) -> MicroCosts:
    """Read what `save` wrote. Raises TlstaxError (CAPTURE)."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LENGTH_MOST + 1)
        if len(text) > _LENGTH_MOST:
            raise ValueError("it is much longer than what tlstax writes")
        document = json.loads(text)
        if document.pop("version") != VERSION:
            raise ValueError("it has another version")
        keys = {name: _key(entry) for name, entry in document.pop("keys").items()}
        records = {name: _records(entry) for name, entry in document.pop("records").items()}
        keygen, derive = (_cost(document.pop(name)) for name in ("keygen", "derive"))
        for name in ("library", "hostname", "cpu_model", "tls_version"):
            if not isinstance(document[name], str):
                raise ValueError(f"{name} is no text")
        return MicroCosts(**document, keygen=keygen, derive=derive, keys=keys, records=records)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise TlstaxError(
            f"cannot read the costs in {path}",
            str(getattr(error, "strerror", None) or error or type(error).__name__),
            "Create the file with `tlstax whatif --save-costs`",
            ExitCode.CAPTURE,
        ) from error


def _cost(entry: Mapping[str, Any]) -> Cost:
    """Raises ValueError, TypeError for what is no time with its interval."""
    made = Cost(**entry)
    if (
        not 0 < made.value_ns < _NS_MOST
        or not -_NS_MOST < made.low_ns <= made.value_ns <= made.high_ns < _NS_MOST
    ):
        raise ValueError(f"{made.low_ns} to {made.high_ns} ns is no interval of {made.value_ns} ns")
    return made


def _key(entry: Mapping[str, Any]) -> KeyCosts:
    shakes = {
        name: HandshakeCost(_cost(entry[name]["server"]), _cost(entry[name]["client"]))
        for name in ("full", "resumed")
        if entry[name]
    }
    setup = _cost(entry["client_setup"]) if entry["client_setup"] else None
    return KeyCosts(_cost(entry["sign"]), _cost(entry["verify"]), **shakes, client_setup=setup)


def _records(entry: Mapping[str, Any]) -> RecordCosts:
    """JSON has no numbers as keys."""
    sides = (
        {int(size): _cost(cost) for size, cost in entry[name].items()}
        for name in ("sent", "received")
    )
    return RecordCosts(*sides)
