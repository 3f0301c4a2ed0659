# SPDX-License-Identifier: GPL-2.0-only
"""`--mysqld PATH`: a server that is on this host, wherever it lies, started privately."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers import any_server
from tlstax.workloads.servers.lab_server import open_program
from tlstax.workloads.servers.programs import find_program

CONNECTIONS_COUNT = 10


@pytest.fixture
def elsewhere(lab_directory: Path) -> Iterator[Path]:
    """A copy of mariadbd and of what makes its data directory, in a directory of its own."""
    home = lab_directory / "elsewhere"
    for directory in ("bin", "sbin", "share"):
        (home / directory).mkdir(parents=True)
    shutil.copy(find_program("mariadbd", "mariadb-server-core"), home / "sbin")
    for name in ("mariadb-install-db", "my_print_defaults", "resolveip"):
        shutil.copy(find_program(name, "mariadb-server-core"), home / "bin")
    shutil.copytree("/usr/share/mysql", home / "share/mysql")
    yield home / "sbin/mariadbd"
    shutil.rmtree(home)


def test_a_program_elsewhere_is_recognised_and_serves_both_arms(elsewhere: Path) -> None:
    found = any_server.examine(elsewhere)
    assert (found.family, found.start.yassl) == ("mariadb", False)
    assert found.messages == elsewhere.parent.parent / "share/mysql"
    with open_program(elsewhere) as server, server.open_status() as status:
        assert Path(f"/proc/{server.pid}/exe").readlink() == elsewhere
        ((version,),) = status.query("SELECT VERSION()")
        assert version.startswith(found.version)
        before = status.read()
        load = Load(SCENARIOS["connect"], 2, 0, CONNECTIONS_COUNT)
        driver = Sysbench.of_server(server, table_rows=10)
        for arm, count in (("plaintext", 0), ("tls", CONNECTIONS_COUNT)):
            driver.run(load, arm)  # type: ignore[arg-type]  # a literal of Arm
            after = status.read()
            assert after.since(before, "Ssl_finished_accepts") == count
            before = after


def test_a_client_is_no_server() -> None:
    with pytest.raises(TlstaxError, match="defines no dispatch_command"):
        any_server.examine(find_program("mariadb", "mariadb-client-core"))
