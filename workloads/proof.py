# SPDX-License-Identifier: GPL-2.0-only
"""Proof of an arm: the driver, the server and the recorder must agree.

Drivers fall back silently, both ways. So every run is checked against three independent
counts: connections that the driver opened, connections and handshakes that the server
counted, handshakes that the recorder saw. One that disagrees fails the run with all of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.model import DriveResult
from tlstax.workloads.results import Arm, RunTotals
from tlstax.workloads.servers.status import Status
from tlstax.workloads.tls import TlsChoice

UNKNOWN = "unknown"  # what a recorder says of a group that the library does not tell
CALLS_TO_CLOSE = 4  # TLS calls of a server at most when it finds that a connection was closed


@dataclass(frozen=True)
class Evidence:
    """What was asked of one run, and what each witness says."""

    label: str
    arm: Arm
    choice: TlsChoice
    driver: DriveResult
    before: Status
    after: Status
    totals: RunTotals
    server_counts: bool = True  # whether the server counts handshakes: with yaSSL it does not
    refused: Mapping[str, int] = field(default_factory=dict)  # see listen_drops
    is_direct: bool = True  # False: a proxy on the way has connections of its own to the server

    @property
    def reused_count(self) -> int:
        """Connections that resumed a session, as the client's library says."""
        return self.driver.reused_count or 0

    def counters(self) -> dict[str, object]:
        """The counts that are compared, as they are kept with the run."""
        return {
            "driver_connections": self.driver.connection_count,
            "driver_lost": self.driver.lost_count,
            "driver_lost_with": dict(self.driver.lost_with),
            "refused_by_full_queue": dict(self.refused),
            "server_connections": self.after.since(self.before, "Connections"),
            "server_handshakes_begun": self._server_count("Ssl_accepts"),
            "server_handshakes": self._server_count("Ssl_finished_accepts"),
            "server_aborted_connects": self.after.since(self.before, "Aborted_connects"),
            "recorder_handshakes": self.totals.handshake_count,
            "recorder_handshakes_failed": self.totals.handshake_failed_count,
            "recorder_handshakes_lost": self.totals.lost_handshake_count,
            "recorder_resumed": self._resumed_count(),
            "client_handshakes": self.totals.client_handshake_count,
            "tls_versions": dict(self.totals.tls_versions),
            "ciphers": dict(self.totals.ciphers),
            "groups": dict(self.totals.groups),
        }

    def _resumed_count(self) -> int:
        """Resumed sessions as the recorder saw them.

        Where a library does not tell whether a handshake resumed, one without an operation with the
        private key did: the client says how many there should be, and it is the other witness.
        """
        seen = self.totals.resumed_count
        if seen or not self.reused_count:
            return seen
        return (self.totals.handshake_count or 0) - self.totals.phase_counts.get("sign", 0)

    def _server_count(self, name: str) -> int | None:
        return self.after.since(self.before, name) if self.server_counts else None

    def objections(self) -> list[str]:
        """What does not agree, one sentence each; empty if the arm is proven."""
        counters = self.counters()
        expected = self.driver.connection_count if self.arm == "tls" else 0
        if self.driver.lost_count:  # which the driver was told to count: they are the question
            return self._objections_beside_losses(expected)
        wanted = [
            ("server_aborted_connects", 0),
            ("recorder_handshakes_failed", 0),
            ("recorder_handshakes_lost", 0),
            ("client_handshakes", expected),
        ]
        if not self.is_direct:
            return _differing(counters, wanted)
        found = _differing(
            counters,
            [
                *wanted,
                ("server_connections", self.driver.connection_count),
                ("server_handshakes_begun", expected),
                ("server_handshakes", expected),
                ("recorder_handshakes", expected),
                ("recorder_resumed", self.reused_count),
            ],
        )
        left = self.after["Threads_connected"] - self.before["Threads_connected"]
        # A proxy that is idle may have closed some of its own, with a few calls each.
        calls = self.totals.tls_call_count - CALLS_TO_CLOSE * max(0, -left)
        if self.arm == "plaintext" and calls > 0:
            found.append(f"recorder saw {self.totals.tls_call_count} TLS calls, not 0")
        if left > 0:
            found.append(f"{left} connections are still open")
        if self.arm == "tls" and self.totals.handshake_count is not None:
            found += self._other_than_asked()
        return found

    def _objections_beside_losses(self, expected: int) -> list[str]:
        """Lost connections break off anywhere, so counts only have bounds."""
        seen = self.totals.handshake_count
        if not self.is_direct or seen is None:
            return []
        if self.arm == "plaintext":
            return [f"recorder saw {seen} handshakes, not 0"] if seen else []
        found = self._other_than_asked()
        if seen + self.totals.lost_handshake_count < expected:
            found.append(f"recorder saw {seen} handshakes of {expected} connections")
        return found

    def _other_than_asked(self) -> list[str]:
        """Versions and ciphers that were negotiated though another one was asked for."""
        return [
            f"{count} handshakes used {what} {name}, not {asked}"
            for what, asked, seen in (
                ("version", self.choice.version, self.totals.tls_versions),
                ("cipher", self.choice.cipher, self.totals.ciphers),
                ("group", self.choice.group, self._told_groups()),
            )
            if asked is not None
            for name, count in sorted(seen.items())
            if name != asked
        ]

    def _told_groups(self) -> dict[str, int]:
        """Groups of handshakes; where a library does not tell them, versions and ciphers count."""
        return {name: count for name, count in self.totals.groups.items() if name != UNKNOWN}

    def prove(self) -> str:
        """The agreeing counters as JSON; TlstaxError (FAILED) with all numbers if they disagree."""
        objections = self.objections()
        counters = json.dumps(self.counters(), sort_keys=True)
        if objections:
            raise TlstaxError(
                f"run {self.label} did not do what was asked",
                f"{'; '.join(objections)} (all counts: {counters})",
                "Make sure that nobody else uses the server, and run it again",
                ExitCode.FAILED,
            )
        return counters


def _differing(counters: Mapping[str, object], wanted: Sequence[tuple[str, int]]) -> list[str]:
    """The counters that are known and not as they must be, one sentence each."""
    return [
        f"{name} is {counters[name]}, not {number}"
        for name, number in wanted
        if counters[name] not in (number, None)
    ]
