# SPDX-License-Identifier: GPL-2.0-only
"""What real sysbench offers in its ClientHello, by OpenSSL and by the groups of a TLS arm."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.model import DriveRequest, Tick, Value
from tlstax.workloads.drivers.other_libraries import OtherLibraries
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.matrix import offers
from tlstax.workloads.matrix.recipe_file import load_recipe
from tlstax.workloads.matrix.server_session import ServerSession
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers import installing
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.tls import TlsChoice

NEWER = "mariadb118"  # Debian trixie, with OpenSSL 3.5
DEFAULTS_30, DEFAULTS_35 = ("X25519",), ("X25519MLKEM768", "X25519")

RECIPE = """
title = "Arms that are what they are called, and one that is not"
[tls.p256]
group = "prime256v1"
key_shares = ["secp256r1"]
[tls.misnamed]
key_shares = ["X25519MLKEM768", "X25519"]
[matrix]
servers = ["host"]
scenarios = ["connect"]
tls = ["p256", "misnamed"]
[scale.smoke]
rounds = 1
operations = 20
"""


@pytest.fixture(scope="module")
def newer_root() -> None:
    """The root of a later Debian; fetched where it is not there yet."""
    installing.install(find_kind(NEWER))


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


@pytest.mark.usefixtures("newer_root")
@pytest.mark.parametrize(
    ("options", "group", "shares"),
    [
        ({}, None, DEFAULTS_30),
        ({}, "prime256v1", ("secp256r1",)),
        ({"openssl": NEWER}, None, DEFAULTS_35),
        ({"openssl": NEWER}, "X25519", ("X25519",)),
        ({"openssl": "host", "c_library": NEWER}, None, DEFAULTS_30),
    ],
)
def test_a_client_offers_what_its_openssl_and_its_groups_say(
    server: PrivateServer, options: dict[str, Value], group: str | None, shares: tuple[str, ...]
) -> None:
    choice = TlsChoice(group=group)
    endpoint = Endpoint(host="127.0.0.1", port=server.port)
    request = DriveRequest(endpoint, server.account(choice), "tls", choice, "connect", seconds=1)
    hello = offers.see_offer(make_driver("sysbench", options), request)
    assert hello is not None
    assert hello.key_shares == shares
    assert (hello.size_bytes > 1216) == ("X25519MLKEM768" in shares)  # the size of that share


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
@pytest.mark.usefixtures("newer_root")
def test_groups_that_encapsulate_keys_have_names(tmp_path: Path) -> None:
    capture = tmp_path / "kem.tlstax"
    driver = make_driver("sysbench", {"openssl": NEWER})
    with open_server(find_kind(NEWER)) as server:
        endpoint = Endpoint(host="127.0.0.1", port=server.port)
        with Recorder(Request(server.pid, capture)) as recorder:
            for group in (None, "X25519", "prime256v1"):
                choice = TlsChoice(group=group)
                request = DriveRequest(
                    endpoint, server.account(choice), "tls", choice, "connect", operation_count=3
                )
                driver.run(request, Tick(wait=recorder.poll))
            recorder.poll(0.5)
    with CaptureReader.open(capture) as reader:
        groups = Counter(one.group_name for one in reader.rows(Handshake))
    assert groups.keys() == {"X25519MLKEM768", "X25519", "prime256v1"}
    assert groups["X25519MLKEM768"] == groups["X25519"] == groups["prime256v1"]


def test_an_arm_with_other_key_shares_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    said: list[str] = []
    recipe = load_recipe(path)
    with Resources() as resources:
        key = recipe.cells[0].server_key
        session = ServerSession(key, recipe, recipe.cells, resources, said.append)
        session.open()
        try:
            right, wrong = recipe.cells
            assert session.why_not(right) is None
            assert "X25519MLKEM768 X25519 are asked for" in (session.why_not(wrong) or "")
            assert "key shares secp256r1" in session.facts["ClientHello sysbench p256"]
        finally:
            session.close()
    assert any("left out: sysbench with TLS misnamed" in line for line in said)


@pytest.mark.usefixtures("newer_root")
@pytest.mark.parametrize(("openssl", "is_own"), [(NEWER, False), ("host", True)])
def test_the_program_runs_with_the_openssl_that_is_named(
    tmp_path: Path, openssl: str, is_own: bool
) -> None:
    program = str(find_program("openssl", "openssl"))
    own = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    prefix = OtherLibraries(openssl, c_library=NEWER).prefix(tmp_path)
    said = subprocess.run(
        [*prefix, program, "version"], capture_output=True, text=True, check=True
    ).stdout
    assert (said == own) == is_own
