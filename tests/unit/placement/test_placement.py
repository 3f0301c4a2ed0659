# SPDX-License-Identifier: GPL-2.0-only
"""Where probes are put: in small programs made for it, and in the system's libraries and server."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.field_chains import returned_fields
from tlstax.collectors.binary.instructions import decode, is_emulated
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import ProbePoint, plan, points_of
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.target import Target
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import Level

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]
MARIADBD = Path("/usr/sbin/mariadbd")
MARIADB_CLIENT = Path("/usr/lib/x86_64-linux-gnu/libmariadb.so.3")
MAIN = "int main(void) { return 0; }"


def assembly(name: str, *lines: str, size: int | None = None) -> str:
    """C source with one function written in assembly."""
    body = "".join(f"{line}\\n" for line in lines)
    end = f"{size}" if size is not None else f".-{name}"
    return (
        f'asm(".text\\n.globl {name}\\n.type {name}, @function\\n{name}:\\n{body}'
        f'.size {name}, {end}\\n");\n'
    )


def all_spots(
    path: Path, name: str, *events: str, argument: int = -1, returned: bool = False
) -> list[tuple[str, ProbePoint]]:
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile(name))
        return points_of(elf, symbol, events, argument, returned)


def points(path: Path, name: str, *events: str, argument: int = -1) -> dict[str, ProbePoint]:
    found = all_spots(path, name, *events, argument=argument)
    assert len({event for event, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize(
    ("code", "emulated"),
    [
        ("55", True),  # push %rbp
        ("4155", True),  # push %r13
        ("54", True),  # push %rsp
        ("6655", False),  # push %bp
        ("4055", False),  # push with an empty REX prefix
        ("6a01", False),  # push $1
        ("90", True),  # nop
        ("f390", False),  # pause
        ("0f1f4000", False),  # multi-byte nop: older kernels step it
        ("7405", True),  # je
        ("0f8405000000", True),  # je, near
        ("2e7405", True),  # je with a hint
        ("667405", False),  # refused by the kernel: the operand size prefix
        ("eb05", True),  # jmp
        ("e905000000", True),
        ("e805000000", True),  # call
        ("f2e905000000", True),  # bnd jmp
        ("ffe0", False),  # jmp *%rax
        ("ff2505000000", False),  # jmp *...(%rip)
        ("e305", False),  # jrcxz
        ("e205", False),  # loop
        ("c3", False),  # ret
        ("f30f1efa", False),  # endbr64
        ("4883ec18", False),  # sub $0x18,%rsp
        ("4889f8", False),  # mov %rdi,%rax
    ],
)
def test_what_the_kernel_emulates(code: str, emulated: bool) -> None:
    (instruction,) = decode(bytes.fromhex(code), 0x1000)
    assert is_emulated(instruction, bytes.fromhex(code)) is emulated


def test_push_first_serves_entry_and_exit(compile_c: Compile) -> None:
    path = compile_c(assembly("f", "push %rbx", "mov %rdi,%rbx", "pop %rbx", "ret") + MAIN)
    found = points(path, "f", "enter", "exit")
    assert found["enter"].address == found["exit"].address
    assert (found["enter"].kind, found["exit"].kind) == ("uprobe", "uretprobe")
    assert found["enter"].emulated
    assert found["exit"].emulated
    assert found["enter"].instruction == "push %rbx"


def test_entry_skips_what_must_be_stepped(compile_c: Compile) -> None:
    source = assembly("f", "endbr64", "sub $0x18,%rsp", "test %edx,%edx", "js 1f", "1: ret")
    path = compile_c(source + MAIN)
    (point,) = points(path, "f", "enter").values()
    with Elf(path) as elf:
        (symbol,) = elf.find(re.compile("f"))
    assert point.address == symbol.address + 10
    assert point.instruction.startswith("js ")
    assert point.emulated


def test_entry_that_needs_an_argument_does_not_wait_until_it_is_gone(compile_c: Compile) -> None:
    source = assembly("f", "mov (%rdi),%rdi", "push %rbx", "pop %rbx", "ret") + MAIN
    path = compile_c(source)
    assert points(path, "f", "enter")["enter"].emulated
    (point,) = points(path, "f", "enter", argument=0).values()
    assert not point.emulated
    assert point.reason.startswith("stepped: no emulated instruction")
    assert points(path, "f", "enter", argument=1)["enter"].emulated


def test_entry_is_never_inside_a_loop(compile_c: Compile) -> None:
    source = assembly("f", "mov $5,%eax", "1: push %rbx", "pop %rbx", "dec %eax", "jne 1b", "ret")
    (point,) = points(compile_c(source + MAIN), "f", "enter").values()
    assert not point.emulated
    assert "mov" in point.instruction


def test_entry_stays_in_the_first_block(compile_c: Compile) -> None:
    source = assembly("f", "xor %eax,%eax", "ret", "push %rbx", "pop %rbx", "ret") + MAIN
    (point,) = points(compile_c(source), "f", "enter").values()
    assert point.instruction.startswith("xor")
    assert not point.emulated


def test_a_short_symbol_ends_the_search(compile_c: Compile) -> None:
    source = assembly("f", "mov %rdi,%rax", "push %rbx", "pop %rbx", "ret", size=3) + MAIN
    (point,) = points(compile_c(source), "f", "enter").values()
    assert not point.emulated


def test_tail_call_is_left_where_its_target_returns_to(compile_c: Compile) -> None:
    source = assembly("inner", "mov $1,%eax", "ret")
    source += assembly("outer", "mov %rdx,%rcx", "jmp inner")
    path = compile_c(source + MAIN)
    found = points(path, "outer", "enter", "exit")
    with Elf(path) as elf:
        (outer,) = elf.find(re.compile("outer"))
    # The stack is as on entry at the jump, so the return address can be taken there.
    assert found["enter"].address == found["exit"].address == outer.address + 3
    assert found["exit"].kind == "uretprobe"
    assert found["enter"].emulated
    assert found["exit"].emulated


def test_a_return_probe_needs_the_stack_as_on_entry(libraries: dict[str, Path]) -> None:
    found = points(libraries["libssl"], "SSL_accept", "enter", "exit")
    assert found["enter"].address == found["exit"].address
    assert found["exit"].kind == "uretprobe"
    assert found["exit"].emulated
    assert "return probe" in found["exit"].reason


PROLOGUE, EPILOGUE = ("sub $0x18,%rsp",), ("add $0x18,%rsp", "ret")


def test_exits_inside_where_the_stack_has_moved(compile_c: Compile) -> None:
    lines = (*PROLOGUE, "test %edx,%edx", "js 2f", "call *%rdi", "mov %eax,%ecx",
             "cmp %fs:0x28,%rdx", "jne 1f", "mov %ecx,%eax", *EPILOGUE, "1: ud2",
             "2: mov $3,%ecx", "jmp 3f", "3: mov %ecx,%eax", *EPILOGUE)  # fmt: skip
    path = compile_c(assembly("f", *lines) + MAIN)
    found = all_spots(path, "f", "enter", "exit", returned=True)
    assert [event for event, _ in found] == ["enter", "exit", "exit"]
    assert [point.instruction.split()[0] for _, point in found] == ["js", "jne", "jmp"]
    assert found[0][1].stack_bytes == 0x18
    assert all(point.emulated and point.kind == "uprobe" for _, point in found)
    # On the way out the value is still in ecx, and the return address lies above 0x18 bytes.
    assert [point.register for event, point in found if event == "exit"] == ["rcx", "rcx"]
    assert [point.stack_bytes for event, point in found if event == "exit"] == [0x20, 0x20]


@pytest.mark.parametrize(
    "tail",
    [
        ("call *%rdi", *EPILOGUE),  # nothing emulated behind the last call
        ("call *%rdi", "1: dec %eax", "jne 1b", *EPILOGUE),  # a loop behind it
        ("call *%rdi", "test %eax,%eax", "je 1f", "call *%rsi", "1:", *EPILOGUE),  # one way only
        ("call *%rdi", "test %eax,%eax", "je 1f", "jmp *(%rsi,%rax,8)", "1:", *EPILOGUE),  # a table
    ],
    ids=["call", "loop", "one way", "table"],
)
def test_where_exits_inside_do_not_serve(compile_c: Compile, tail: tuple[str, ...]) -> None:
    lines = (*PROLOGUE, "test %edx,%edx", "js 9f", "9:", *tail)
    found = all_spots(compile_c(assembly("f", *lines) + MAIN), "f", "enter", "exit")
    assert not any(point.emulated for _, point in found)
    assert {point.reason.partition(":")[0] for _, point in found} == {"stepped"}


def test_what_is_returned_must_be_known_at_every_exit(compile_c: Compile) -> None:
    lines = (*PROLOGUE, "test %edx,%edx", "js 1f", "1: call *%rdi", "test %eax,%eax", "je 2f",
             "2: xor %eax,%eax", *EPILOGUE)  # fmt: skip
    path = compile_c(assembly("f", *lines) + MAIN)
    assert all(point.emulated for _, point in all_spots(path, "f", "enter", "exit"))
    reading = all_spots(path, "f", "enter", "exit", returned=True)
    assert not any(point.emulated for _, point in reading)


def test_an_argument_is_followed_into_another_register(compile_c: Compile) -> None:
    lines = ("sub $8,%rsp", "mov %rdi,%rbx", "mov (%rsi),%rdi", "test %rdi,%rdi", "je 1f",
             "call *%rdi", "1: add $8,%rsp", "ret")  # fmt: skip
    (point,) = points(compile_c(assembly("f", *lines) + MAIN), "f", "enter", argument=0).values()
    assert point.instruction.startswith("je")
    assert point.register == "rbx"


def test_what_returns_at_once_may_go_around_the_entry(compile_c: Compile) -> None:
    lines = ("sub $8,%rsp", "jrcxz 1f", "push %rbx", "call *%rdi", "pop %rbx", "1: add $8,%rsp",
             "ret")  # fmt: skip
    (point,) = points(compile_c(assembly("f", *lines) + MAIN), "f", "enter").values()
    assert point.instruction == "push %rbx"
    assert "return at once" in point.reason
    bare = ("mov %rdi,%rax", "jrcxz 1f", "push %rbx", "call *%rdi", "pop %rbx", "1: ret")
    path = compile_c(assembly("f", *bare) + MAIN)
    assert all(point.emulated for point in points(path, "f", "enter", "exit").values())
    # An exit alone would be missing for the call that returned at once.
    assert not points(path, "f", "exit")["exit"].emulated


def test_code_that_does_not_disassemble_is_probed_at_its_start(compile_c: Compile) -> None:
    lines = ("mov %rdi,%rax", "test %eax,%eax", "je 1f", ".byte 0x06", "1: ret")
    (point,) = points(compile_c(assembly("f", *lines) + MAIN), "f", "enter").values()
    assert not point.emulated
    assert "does not disassemble" in point.reason
    assert points(compile_c(assembly("f", ".byte 0x06", "ret") + MAIN), "f", "enter") == {}
    jump = ("test %edi,%edi", "je 1f+1", "1: mov $0x90909090,%eax", "ret")
    middle = compile_c(assembly("f", *jump) + MAIN)
    (point,) = points(middle, "f", "enter").values()
    assert "middle of an instruction" in point.reason


@pytest.mark.parametrize(
    ("lines", "chains"),
    [
        (["mov 0x918(%rdi),%rax", "xor %edi,%edi", "ret"], {(0x918,)}),
        (["mov (%rdi),%eax", "ret"], {(0,)}),
        (
            ["mov 8(%rdi),%rax", "test %rax,%rax", "je 1f", "mov 0x2f8(%rax),%rax", "1: ret"],
            {(8,), (8, 0x2F8)},
        ),
        (["test %rdi,%rdi", "je 1f", "mov 16(%rdi),%rdi", "mov 4(%rdi),%eax", "ret",
          "1: xor %eax,%eax", "ret"], {(16, 4)}),
        (["mov 8(%rdi),%rax", "add $1,%rax", "ret"], set()),
        (["mov 8(%rsi),%rax", "ret"], set()),
        (["mov %fs:8,%rax", "ret"], set()),
        (["mov 8(%rdi),%rax", "call main", "ret"], set()),
        (["1: jmp 1b"], set()),
    ],
)  # fmt: skip
def test_fields_that_accessors_return(
    compile_c: Compile, lines: list[str], chains: set[tuple[int, ...]]
) -> None:
    with Elf(compile_c(assembly("f", *lines) + MAIN)) as elf:
        (symbol,) = elf.find(re.compile("f"))
        assert returned_fields(elf.code_at(symbol.address, symbol.size), symbol.address) == chains


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
    assert [site for site in planned.sites if site.stepped] == []


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
    assert {site.function for site in planned.sites if site.action == "call"} == {
        "SSL_read",
        "SSL_write",
        "SSL_read_ex",
        "SSL_write_ex",
    }
    assert all(site.action != "call" for site in plan(bare, load_definitions()).sites)


def test_a_server_is_no_client_and_a_client_no_server(server: Target, client: Target) -> None:
    assert plan(server, load_definitions(), role="client").library("server") is None
    assert plan(client, load_definitions()).library("client") is None


def test_levels_add_probes(server: Target) -> None:
    definitions = load_definitions()
    sizes = [len(plan(server, definitions, level).sites) for level in Level]
    assert sizes[0] == 0
    assert sizes == sorted(set(sizes)), "each level adds something"


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
    with pytest.raises(TlstaxError, match="not one that tlstax knows"):
        plan(replace(target, tls_objects=(unknown,)), load_definitions())


def test_plan_in_child_gives_the_same(tls_process: Target) -> None:
    target, planned = plan_in_child(tls_process.pid)
    assert target == tls_process
    assert planned == plan(tls_process, load_definitions(), host_costs=planned.host_costs)
    check(planned)
    with pytest.raises(TlstaxError, match="no such process"):
        plan_in_child(1 << 22)
