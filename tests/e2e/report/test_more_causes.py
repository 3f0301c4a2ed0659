# SPDX-License-Identifier: GPL-2.0-only
"""Causes beside keys and round trips, injected into real servers: named, and silent without.

Several loads on one server each. `make test-causes` runs the long ones; `make check-causes` has
more strengths of each, and those that need servers of their own: a replica, dear passwords, the
allocator.
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
from tlstax.tests.truth.causes.causes import CASES
from tlstax.tests.truth.causes.loads import TLS12, rows
from tlstax.tests.truth.causes.more_causes import LDAP, MORE, PAM, WITHOUT_AES
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SECONDS, WINDOW_S = 1.5, 0.25
NEW = {one for case in (*MORE.values(), CASES["failing"]) for one in case.expected}
Place = tuple[PrivateServer, Endpoint]


def found(injection: Injection, place: Place, directory: Path, longer: int = 1) -> set[str]:
    """Those of the newer findings that a load on a running server has.

    `longer`: a factor, where a window needs more samples for a share of a seventh.
    """
    capture = directory / "capture.tlstax"
    load = replace(injection, seconds=longer * SECONDS, window_s=longer * WINDOW_S)
    bench.record_load(load, *place, capture, directory)
    with CaptureReader.open(capture) as reader:
        return NEW & {one.id for one in explain.explain(tables.load(reader)).findings}


def setting(place: Place, statement: str) -> None:
    """Change the server while it runs."""
    with place[0].open_administrator() as session:
        session.query(statement)


@pytest.mark.long
def test_what_clients_do_wrong_is_named_and_the_same_server_without_it_has_none(
    lab_directory: Path, tmp_path: Path
) -> None:
    asked = Injection(options=("thread_cache_size = 64",))
    storm = Injection(script="storm")
    with bench.reachable(asked, tmp_path) as place:
        assert found(storm, place, tmp_path) == set(), "connections that come and go"
        results = Injection(script="result", sysbench=rows(262_144, 0))
        assert found(results, place, tmp_path) == set(), "connections that stay"
        for stranger, expected in (
            ("untrusting", "refused_by_clients"),
            ("unknown", "refused_by_server"),
            ("outdated", "nothing_in_common"),
        ):
            assert found(Injection(stranger=stranger), place, tmp_path) == {expected}, stranger
        plain = replace(storm, tls=False)
        assert found(plain, place, tmp_path) == set(), "threads are kept"
        setting(place, "SET GLOBAL thread_cache_size = 0")
        assert found(plain, place, tmp_path, longer=3) == {"thread_creation"}


@pytest.mark.long
def test_what_is_wrong_with_a_server_is_named_and_silent_when_it_is_mended(
    lab_directory: Path,
) -> None:
    environment = (("LONG_LOCK_US", "200"), ("LONG_PAM_US", "30000"), *WITHOUT_AES)
    options = ("plugin_load_add = auth_pam_v1",)
    asked = Injection(expired=True, environment=environment, options=options)
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
        guessed = Injection(guesses=PAM)
        assert found(guessed, place, own) == {"external_authentication"}
        storm = Injection(script="storm", threads=8, choice=TLS12)
        assert found(storm, place, own) == {"library_lock"}
        results = Injection(script="result", sysbench=rows(262_144, 0))
        assert found(results, place, own) == {"cipher_in_software"}


@pytest.mark.long  # beside other tests clients wait for CPUs, too
def test_commands_in_parts_are_named_and_clients_that_think_are_not(lab_directory: Path) -> None:
    """Each waits 42 ms or so for each query; the directory beside them takes as long."""
    with ExitStack() as stack:
        own = Path(stack.enter_context(TemporaryDirectory(dir=lab_directory)))
        own.chmod(0o711)  # the server's user reads a plug-in there
        place = stack.enter_context(bench.reachable(Injection(directory_ms=40), own))
        split = Injection(split_bytes=6, threads=4)
        assert found(split, place, own, longer=8) == {"delayed_acknowledgements"}
        for pause in (Injection(late_ms=42, threads=4), Injection(halting_ms=42, threads=4)):
            assert found(pause, place, own, longer=8) == set()
        guessed = Injection(guesses=LDAP, directory_ms=40)
        assert found(guessed, place, own, longer=3) == {"external_authentication"}
