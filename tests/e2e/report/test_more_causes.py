# SPDX-License-Identifier: GPL-2.0-only
"""Causes beside keys and round trips, injected into real servers: named, and silent without.

Several loads on one server each. `make check-causes` has more strengths of each, and those that
need servers of their own: a replica, dear passwords, the allocator.
"""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.certs.generate import write_private
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.causes import bench
from tlstax.tests.truth.causes.bench import Injection
from tlstax.tests.truth.causes.loads import TLS12, rows
from tlstax.tests.truth.causes.more_causes import MORE, PAM, WITHOUT_AES
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SECONDS, WINDOW_S = 2.0, 0.25
NEW = {one for case in MORE.values() for one in case.expected}
Place = tuple[PrivateServer, Endpoint]


def found(injection: Injection, place: Place, directory: Path) -> set[str]:
    """Those of the newer findings that a load on a running server has."""
    capture = directory / "capture.tlstax"
    factor = 4 if injection.guesses else 1  # PAM takes seconds to refuse
    load = replace(injection, seconds=factor * SECONDS, window_s=factor * WINDOW_S)
    bench.record_load(load, *place, capture, directory)
    with CaptureReader.open(capture) as reader:
        return NEW & {one.id for one in explain.explain(tables.load(reader)).findings}


def setting(place: Place, statement: str) -> None:
    """Change the server while it runs."""
    with place[0].open_administrator() as session:
        session.query(statement)


def test_what_clients_do_wrong_is_named_and_the_same_server_without_it_has_none(
    lab_directory: Path, tmp_path: Path
) -> None:
    asked = Injection(options=("thread_cache_size = 64", "plugin_load_add = auth_pam_v1"))
    storm = Injection(script="storm")
    with bench.reachable(asked, tmp_path) as place:
        assert found(storm, place, tmp_path) == set(), "connections that come and go"
        results = Injection(script="result", sysbench=rows(262_144, 0))
        assert found(results, place, tmp_path) == set(), "connections that stay"
        for stranger, expected in (
            ("untrusting", "certificate_refused"),
            ("outdated", "nothing_in_common"),
        ):
            assert found(Injection(stranger=stranger), place, tmp_path) == {expected}, stranger
        guessed = Injection(guesses=PAM, guessers=16)
        assert found(guessed, place, tmp_path) == {"external_authentication"}
        plain = replace(storm, tls=False)
        assert found(plain, place, tmp_path) == set(), "threads are kept"
        setting(place, "SET GLOBAL thread_cache_size = 0")
        assert found(plain, place, tmp_path) == {"thread_creation"}


def test_an_expired_certificate_and_a_lock_that_is_held_are_named(lab_directory: Path) -> None:
    environment = (("LONG_LOCK_US", "200"), *WITHOUT_AES)
    asked = Injection(expired=True, environment=environment)
    verifying = Injection(stranger="trusting", tls=False)
    with ExitStack() as stack:
        own = Path(stack.enter_context(TemporaryDirectory(dir=lab_directory)))
        own.chmod(0o711)  # the server's user reads a library there
        place = stack.enter_context(bench.reachable(asked, own))
        assert found(verifying, place, own) == {"expired_certificate"}
        file = place[0].directory.server / "server-cert.pem"
        write_private(file, (own / "of-server" / "valid.pem").read_bytes(), replace=True)
        file.chmod(0o644)
        setting(place, "FLUSH SSL")
        assert found(verifying, place, own) == set(), "a certificate that is valid"
        storm = Injection(script="storm", threads=8, choice=TLS12)
        assert found(storm, place, own) == {"library_lock"}
        results = Injection(script="result", sysbench=rows(262_144, 0))
        assert found(results, place, own) == {"cipher_in_software"}
