# SPDX-License-Identifier: GPL-2.0-only
"""Measure the cost of single TLS operations on this host, with the OpenSSL of this Python.

Signatures, verification and key exchange are EVP calls of libcrypto; for whole handshakes two
connections of libssl exchange data through memory. All times are CPU time of this thread, so that
other processes disturb them little; kinds alternate, so that a drift of the machine affects all of
them equally.
"""

import platform
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import Certificates, KeyKind, generate
from tlstax.collectors.capture.micro_costs import (
    Cost,
    HandshakeCost,
    KeyCosts,
    MicroCosts,
    RecordCosts,
)
from tlstax.collectors.capture.order_statistics import median_bounds
from tlstax.collectors.host.cpu_facts import cpu_field
from tlstax.collectors.microbench.cipher_costs import measure_records
from tlstax.collectors.microbench.crypto_operations import CryptoOperations, _mapped, host_library

BATCHES: Final = 15
BATCHES_MOST: Final = 60
CERTAIN: Final = 0.04
"""Measuring stops, after enough batches, when the medians are known to within this share."""
BATCH_S: Final = 0.008
HANDSHAKES: Final = 4
"""In each batch."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SMALL_KEYS: Final = "ALL:@SECLEVEL=0"


def measure(
    sign_kinds: Sequence[str],
    handshake_kinds: Sequence[str],
    mutual: bool,
    tls_version: str,
    ciphers: Sequence[str] = (),
) -> MicroCosts:
    """Measure; TlstaxError (HOST) if this OpenSSL lacks a required feature.

    Signatures with `sign_kinds`, whole handshakes with `handshake_kinds`, records with `ciphers`.
    """
    if tls_version not in _VERSIONS:
        raise TlstaxError(
            f"cannot measure {tls_version} handshakes",
            f"tlstax measures only {' and '.join(_VERSIONS)} with this host's {host_library()}",
            "Record a server that uses one of them",
            ExitCode.HOST,
        )
    names = list(dict.fromkeys([*sign_kinds, *handshake_kinds]))
    with tempfile.TemporaryDirectory(prefix="tlstax-costs-") as folder:
        made = {
            name: generate(Path(folder) / name.replace(":", "-"), KeyKind.parse(name))
            for name in names
        }
        crypto = CryptoOperations()
        loops: dict[str, Callable[[], object]] = {
            "keygen": crypto.generate_key,
            "derive": crypto.deriver(),
        }
        for name, files in made.items():
            loops[f"sign {name}"], loops[f"verify {name}"] = crypto.signer(files.server_key)
        single = _timed(loops)
        lanes = {name: _Lane(made[name], mutual, tls_version) for name in handshake_kinds}
        for _ in _batches(lambda: all(lane.is_certain() for lane in lanes.values())):
            for lane in lanes.values():
                lane.batch()
        records = _records(ciphers, tls_version, Path(folder)) if ciphers else {}
    keys = {name: KeyCosts(single[f"sign {name}"], single[f"verify {name}"]) for name in names}
    keys |= {name: lane.costs(keys[name]) for name, lane in lanes.items()}
    return MicroCosts(
        library=host_library(),
        hostname=platform.node(),
        cpu_model=cpu_field("model name"),
        tls_version=tls_version,
        mutual=mutual,
        keygen=single["keygen"],
        derive=single["derive"],
        keys=keys,
        records=records,
    )


def _records(ciphers: Sequence[str], tls_version: str, folder: Path) -> dict[str, RecordCosts]:
    """Cost of records with each cipher."""
    libssl = _mapped("libssl.so")
    files = generate(folder / "of-records", KeyKind.parse("rsa:2048"))
    found = measure_records(libssl, ciphers, tls_version, files, BATCHES)
    made = {}
    for name, times in found.items():
        ways = (
            {size: _cost(values) for (one, size), values in times.items() if one == way}
            for way in ("sent", "received")
        )
        made[name] = RecordCosts(*ways)
    return made


def _batches(is_certain: Callable[[], bool]) -> Iterator[int]:
    """Enough batches, and more of them while other processes disturb the measurement."""
    for number in range(BATCHES_MOST):
        if number >= BATCHES and is_certain():
            return
        yield number


def _timed(loops: dict[str, Callable[[], object]]) -> dict[str, Cost]:
    """Every loop in alternating batches."""
    batches: dict[str, list[float]] = {name: [] for name in loops}
    for call in loops.values():
        call()  # warm-up: algorithms are fetched once
    for _ in _batches(lambda: all(map(_is_certain, batches.values()))):
        for name, call in loops.items():
            count, start_ns = 0, time.thread_time_ns()
            end_ns = start_ns + int(BATCH_S * 1e9)
            while (now_ns := time.thread_time_ns()) < end_ns or not count:
                call()
                count += 1
            batches[name].append((now_ns - start_ns) / count)
    return {name: _cost(values) for name, values in batches.items()}


def _cost(values: Sequence[float]) -> Cost:
    """The median of the batches with its interval."""
    ordered = sorted(values)
    return Cost(median(ordered), *median_bounds(ordered))


def _is_certain(values: Sequence[float]) -> bool:
    """Whether further batches would add little: the batches agree, or most of them do."""
    cost = _cost(values)
    return cost.high_ns - cost.low_ns <= 2 * CERTAIN * cost.value_ns


class _Lane:
    """Handshakes in memory with one kind of key, alternating full and resumed.

    A client library creates a new context for each connect. That costs more than loading files: the
    first signature with a newly loaded RSA key also computes its blinding.
    """

    def __init__(self, files: Certificates, mutual: bool, tls_version: str) -> None:
        self._files = files
        self._mutual = mutual
        self._version = _VERSIONS[tls_version]
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._prepare(self._server, files.server, files.server_key)
        if mutual:
            self._server.verify_mode = ssl.CERT_REQUIRED
            self._server.load_verify_locations(files.ca)
        self._client = self._client_context()
        self._times: dict[str, list[float]] = {
            name: [] for name in ("full server", "full client", "resumed server",
                                  "resumed client", "setup")
        }  # fmt: skip
        self._session = self._shake(self._client, None)[2]

    def _prepare(self, context: ssl.SSLContext, certificate: Path, key: Path) -> None:
        context.minimum_version = context.maximum_version = self._version
        context.set_ciphers(_SMALL_KEYS)
        context.load_cert_chain(certificate, key)

    def _client_context(self) -> ssl.SSLContext:
        """A client context, as a client library creates it for each connect."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self._files.ca)
        if self._mutual:
            self._prepare(context, self._files.client, self._files.client_key)
        else:
            context.minimum_version = context.maximum_version = self._version
            context.set_ciphers(_SMALL_KEYS)
        return context

    def batch(self) -> None:
        """Time a few handshakes of each kind."""
        for kind, session in (("full", None), ("resumed", self._session)):
            server_ns = client_ns = 0
            for _ in range(HANDSHAKES):
                # Sessions belong to a context, so a resumed handshake reuses the context.
                server, client, self._session = self._shake(self._client, session)
                server_ns, client_ns = server_ns + server, client_ns + client
            self._times[f"{kind} server"].append(server_ns / HANDSHAKES)
            self._times[f"{kind} client"].append(client_ns / HANDSHAKES)
        fresh_ns = 0
        for _ in range(HANDSHAKES):
            start_ns = time.thread_time_ns()
            context = self._client_context()
            fresh_ns += time.thread_time_ns() - start_ns + self._shake(context, None)[1]
        self._times["setup"].append(fresh_ns / HANDSHAKES - self._times["full client"][-1])

    def _shake(
        self, context: ssl.SSLContext, session: ssl.SSLSession | None
    ) -> tuple[int, int, ssl.SSLSession | None]:
        """One handshake: CPU time of the server and of the client, and the session."""
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        started_ns = time.thread_time_ns()
        client = context.wrap_bio(to_client, to_server, session=session)
        client_ns = time.thread_time_ns() - started_ns
        started_ns = time.thread_time_ns()
        server = self._server.wrap_bio(to_server, to_client, server_side=True)
        server_ns = time.thread_time_ns() - started_ns
        ready = [False, False]
        while not all(ready):
            for index, side in enumerate((client, server)):
                started_ns = time.thread_time_ns()
                ready[index] = ready[index] or _advance(side)
                spent_ns = time.thread_time_ns() - started_ns
                client_ns, server_ns = (
                    (client_ns + spent_ns, server_ns)
                    if index == 0
                    else (client_ns, server_ns + spent_ns)
                )
        # Tickets of TLS 1.3 follow the handshake; a read receives them.
        server.write(b"x")
        client.read(1)
        if session is not None and not client.session_reused:
            raise TlstaxError(
                "cannot measure a resumed handshake",
                f"{host_library()} did not resume its session",
                "Predict without --resume",
                ExitCode.HOST,
            )
        return server_ns, client_ns, client.session

    def is_certain(self) -> bool:
        """Whether the handshakes are known precisely; context costs, a difference, never are."""
        return all(_is_certain(values) for name, values in self._times.items() if name != "setup")

    def costs(self, single: KeyCosts) -> KeyCosts:
        """The medians."""
        found = {name: _cost(values) for name, values in self._times.items()}
        return replace(
            single,
            full=HandshakeCost(found["full server"], found["full client"]),
            resumed=HandshakeCost(found["resumed server"], found["resumed client"]),
            client_setup=found["setup"],
        )


def _advance(side: ssl.SSLObject) -> bool:
    """One step of a handshake; whether it is over."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
