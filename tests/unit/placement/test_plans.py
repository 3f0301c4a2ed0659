# SPDX-License-Identifier: GPL-2.0-only
"""Plans of whole processes: servers, clients, libraries inside a program, and what is missing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.instructions import decode
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.programs.site_cookies import lowest_level
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import DETAIL_PHASES, Level
from tlstax.tests.unit.placement.examples import Compile, MakeTarget, assembly

MARIADBD = Path("/usr/sbin/mariadbd")
MARIADB_CLIENT = Path("/usr/lib/x86_64-linux-gnu/libmariadb.so.3")
MAIN = "int main(void) { return 0; }"


def check(planned: Plan) -> None:
    """Every site is an instruction boundary within its function, and cheap where it can be."""
    for site in planned.sites:
        with Elf(site.object.open_path) as elf:
            assert elf.to_offset(site.virtual_address) == site.file_offset
            if site.function.startswith("["):
                continue
            (symbol, *_) = elf.find(re.compile(re.escape(site.function)))
            code = elf.code_at(symbol.address, symbol.size or 4096)
            starts = {instruction.ip for instruction in decode(code, symbol.address)}
            assert site.virtual_address in starts


@pytest.fixture
def server(target_of: MakeTarget, libraries: dict[str, Path]) -> Target:
    """Debian's MariaDB server with the system's libssl."""
    return target_of(MARIADBD, libraries["libssl"], libraries["libcrypto"])


def test_plan_for_mariadb(server: Target) -> None:
    planned = plan(server, load_definitions())
    check(planned)
    # Debian's build hides the functions of the storage engine.
    hidden = {"row_lock_wait", "latch_wait", "log_flush_wait"}
    assert {entry.boundary for entry in planned.missing} == hidden
    assert {library.id: library.linkage for library in planned.libraries} == {
        "mariadb": "program",
        "openssl3": "shared",
    }
    tls, mariadb = planned.library("tls"), planned.library("server")
    assert tls is not None
    assert re.fullmatch(r"OpenSSL 3\.\d+\.\d+", tls.version)
    assert mariadb is not None
    assert re.match(r"\d+\.\d+\.\d+-MariaDB", mariadb.version)
    assert all(offset >= 0 for offset in planned.accessors.values())
    assert {site.kind for site in planned.sites} == {"uprobe"}
    # The end of sslconnect is in a function that it shares with sslaccept: no return there.
    assert not any(site.stepped for site in planned.sites)


@pytest.fixture
def client(target_of: MakeTarget, libraries: dict[str, Path], compile_c: Compile) -> Target:
    """A program with MariaDB Connector/C, and with a TLS library that it does not use."""
    directory = MARIADB_CLIENT.parent
    others = (directory / "libgnutls.so.30", libraries["libssl"], libraries["libcrypto"])
    return target_of(compile_c(MAIN), MARIADB_CLIENT, *others)


def test_a_client_is_probed_at_its_library_s_calls(client: Target) -> None:
    definitions = load_definitions()
    rare = plan(client, definitions, Level.HANDSHAKE, "client")
    dense = plan(client, definitions, Level.RECORD, "client")
    check(rare)
    check(dense)
    calls = [{s.function for s in p.sites if s.action == "call"} for p in (rare, dense)]
    assert calls[0] == {"mysql_real_connect", "mysql_change_user", "mysql_close"}
    assert calls[0] | {"mysql_real_query", "mysql_stmt_execute"} < calls[1]
    assert not any(name.startswith(("SSL_", "gnutls_")) for name in calls[1])
    connector, tls = dense.library("client"), dense.library("tls")
    assert connector is not None
    assert re.match(r"3\.\d+\.\d+", connector.version)
    assert tls is not None
    assert tls.id == "openssl3", "what the connector was linked with comes first"
    assert {s.success for s in rare.sites if s.function == "gnutls_handshake"} == {"zero"}
    assert {s.success for s in rare.sites if s.object.name.startswith("libssl")} == {"one"}


def test_a_client_without_a_library_is_probed_at_its_reads_and_writes(
    target_of: MakeTarget, libraries: dict[str, Path], compile_c: Compile
) -> None:
    bare = target_of(compile_c(MAIN), libraries["libssl"], libraries["libcrypto"])
    planned = plan(bare, load_definitions(), Level.RECORD, "client")
    entered = [s.function for s in planned.sites if (s.action, s.event) == ("call", "enter")]
    assert sorted(entered) == ["SSL_read", "SSL_read_ex", "SSL_write", "SSL_write_ex"]
    assert all(site.action != "call" for site in plan(bare, load_definitions()).sites)


def test_a_server_is_no_client_and_a_client_no_server(server: Target, client: Target) -> None:
    assert plan(server, load_definitions(), role="client").library("server") is None
    assert plan(client, load_definitions()).library("client") is None


def test_level_signature_has_no_other_operations(server: Target) -> None:
    definitions = load_definitions()
    whole = plan(server, definitions, Level.HANDSHAKE).sites
    details = {site.boundary for site in whole if site.phase in DETAIL_PHASES}
    assert details >= {"keygen", "derive", "verify_digest", "certificate"}
    assert {lowest_level(site) for site in whole if site.boundary in details} == {"handshake"}
    rest = plan(server, definitions, Level.SIGNATURE).sites
    assert {site.boundary for site in rest} == {site.boundary for site in whole} - details
    assert not {lowest_level(site) for site in rest} & {"handshake", "connection"}


def test_calls_that_only_ask_for_a_size_hit_nothing(server: Target) -> None:
    """The library asks for the size of a signature and of a secret first, by the same functions."""
    sites = plan(server, load_definitions(), Level.HANDSHAKE).sites
    for boundary in ("sign_digest", "derive"):
        mine = [site for site in sites if site.boundary == boundary]
        assert {site.event for site in mine} == {"enter", "exit"}
        assert not {site.function for site in mine} & {"EVP_DigestSign", "EVP_PKEY_derive"}
        assert all(site.instruction.startswith("call") for site in mine if site.event == "enter")
    assert not {site.action for site in sites} & {"base_connect", "base_idle", "handshake_bound"}
    (peer,) = (site for site in sites if site.boundary == "peer_certificate")
    assert (peer.event, peer.action) == ("enter", "crossing")


def test_levels_add_probes(server: Target) -> None:
    definitions = load_definitions()
    sizes = [len(plan(server, definitions, level).sites) for level in Level]
    sample, signature, handshake, connection, flow, command, record = sizes
    # Debian's build hides the functions that level flow adds: those called to wait.
    assert sample < signature < handshake < connection == flow < command < record, (
        "each level adds something"
    )


def test_server_definitions_are_optional(
    target_of: MakeTarget, compile_c: Compile, libraries: dict[str, Path]
) -> None:
    client = target_of(compile_c(MAIN), libraries["libssl"], libraries["libcrypto"])
    planned = plan(client, load_definitions())
    assert [library.id for library in planned.libraries] == ["openssl3"]
    assert {site.action for site in planned.sites} >= {"handshake_call", "handshake_free"}


def test_static_library_in_the_program(
    target_of: MakeTarget, compile_c: Compile, tmp_path: Path
) -> None:
    source = "#include <openssl/ssl.h>\nint main(void) { return SSL_accept(0) + "
    source += "EVP_PKEY_generate(0, 0) + EVP_DigestSign(0, 0, 0, 0, 0); }"
    path = compile_c(source, "-static", "-l:libssl.a", "-l:libcrypto.a", "-pthread")
    planned = plan(target_of(path), load_definitions())
    check(planned)
    assert [library.linkage for library in planned.libraries] == ["static"]
    assert "handshake_call" in {site.boundary for site in planned.sites}
    assert [missing.boundary for missing in planned.missing] == []


def test_two_copies_of_a_library_are_both_probed(
    target_of: MakeTarget, libraries: dict[str, Path], tmp_path: Path, compile_c: Compile
) -> None:
    copy = tmp_path / "libssl.so.3"
    copy.write_bytes(libraries["libssl"].read_bytes())
    target = target_of(compile_c(MAIN), libraries["libssl"], libraries["libcrypto"], copy)
    sites = plan(target, load_definitions()).sites
    paths = {s.object.path for s in sites if s.boundary == "handshake_free"}
    assert paths == {str(libraries["libssl"]), str(copy)}


OWN = """
id = "own"
kind = "server"
name = "Own"
[detect]
objects = ["program"]
symbols = ["dear"]
version = { text = "Own ", pattern = 'Own \\d+' }
[[boundary]]
id = "command"
action = "phase"
phase = "command"
level = "command"
functions = ["absent", "dear", { name = "cheap", hits = 2 }]
missing = "Commands are not seen."
[[boundary]]
id = "lost"
action = "phase_open"
phase = "command"
level = "command"
functions = ["gone", "vanished*"]
missing = "Something else is not seen."
"""


def test_the_cheapest_equivalent_is_taken_and_the_missing_named(
    target_of: MakeTarget, compile_c: Compile, libraries: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    source = 'const char version[] = "Own 7";' + assembly("dear", "mov %rdi,%rax", "ret")
    source += assembly("cheap", "push %rbx", "pop %rbx", "ret") + MAIN
    path = compile_c(source)
    target = target_of(path, libraries["libssl"], libraries["libcrypto"])
    planned = plan(target, load_definitions(tmp_path))
    assert {s.function for s in planned.sites if s.boundary == "command"} == {"cheap"}
    own = planned.library("server")
    assert own is not None
    assert own.version == "Own 7"
    (missing,) = planned.missing
    assert missing.boundary == "lost"
    assert missing.functions == ("gone", "vanished*")
    assert missing.consequence == "Something else is not seen."


def test_no_tls_library_is_one_clear_error(target_of: MakeTarget, compile_c: Compile) -> None:
    target = target_of(compile_c(MAIN))
    with pytest.raises(TlstaxError, match="no TLS library") as caught:
        plan(target, load_definitions())
    assert caught.value.exit_code is ExitCode.TARGET
    unknown = replace(target.program, path="/lib/libgnutls.so.30")
    with pytest.raises(TlstaxError, match="is not supported"):
        plan(replace(target, tls_objects=(unknown,)), load_definitions())


def test_plan_in_child_gives_the_same(tls_process: Target) -> None:
    target, planned = plan_in_child(tls_process.pid)
    assert target == tls_process
    made = plan(tls_process, load_definitions(), host_costs=planned.host_costs.on(1))
    plain = made.as_asked(networks=False).priced(planned.host_costs)
    assert planned == plain, "placed by the prices on one CPU"
    check(planned)
    assert plan_in_child(tls_process.pid, networks=True)[1].has_networks
    assert not planned.has_networks, "a probe for addresses that nobody asked for"
    with pytest.raises(TlstaxError, match="no such process"):
        plan_in_child(1 << 22)


def test_level_flow_probes_nothing_that_a_query_crosses(server: Target) -> None:
    # A trap in each query is what this level is there to avoid.
    planned = plan(server, load_definitions(), Level.FLOW)
    check(planned)
    assert planned.is_flow
    assert "command" not in {site.per for site in planned.sites}
    boundaries = {site.boundary for site in planned.sites}
    assert boundaries >= {"connect_ready", "disconnect", "handshake_call", "load_data_local"}
    assert not boundaries & {"await_command", "command", "record_write", "file_read"}
    gaps = {gap.boundary for gap in planned.gaps}
    assert {"records", "group_commit_wait", "tde_cipher_begin"} <= gaps


def test_level_flow_probes_the_next_command_if_nothing_marks_a_connection_as_ready(
    server: Target,
) -> None:
    # Else a connection would be in `connect` for ever.
    definitions = [
        replace(entry, boundaries=tuple(b for b in entry.boundaries if b.action != "base_idle"))
        for entry in load_definitions()
    ]
    planned = plan(server, definitions, Level.FLOW)
    (site,) = [site for site in planned.sites if site.per == "command"]
    assert (site.boundary, planned.covered_by_tracepoint(site)) == ("await_command", False)


def test_a_client_has_no_level_flow(server: Target) -> None:
    planned = plan(server, load_definitions(), Level.FLOW, "client")
    assert not planned.is_flow
