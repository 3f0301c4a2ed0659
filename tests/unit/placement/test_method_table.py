# SPDX-License-Identifier: GPL-2.0-only
"""Functions behind a table of pointers: found where the library really points, or not at all."""

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.placement.detection import OpenObject
from tlstax.collectors.placement.method_table import (
    copied_slot,
    functions_in,
    pointer_at,
    returned_address,
)
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target
from tlstax.probes.definitions import load_definitions, parse_definition
from tlstax.probes.model import Level, MethodTable, compile_names

# The shape of libssl, with names for what libssl hides.
SOURCE = """
#define HIDDEN __attribute__((noinline, visibility("hidden")))
struct connection;
typedef int step(struct connection *);
struct methods { int version; step *accept, *connect; };
struct connection { int kind, open; const struct methods *methods; step *call; int shutdown; };
HIDDEN int work(struct connection *c, int server) { return c->kind + server; }
HIDDEN int shake_accept(struct connection *c) { return work(c, 1); }
HIDDEN int shake_connect(struct connection *c) { return work(c, 0); }
HIDDEN void clear(struct connection *c) { c->open = 0; __asm__ volatile(""); }
int undefined(struct connection *c) { return -1; }
static const struct methods both = { 1, ACCEPT, shake_connect };
const struct methods *get_methods(void) { GETTER return &both; }
void set_accept(struct connection *c) { if (!c) return; c->shutdown = 0; clear(c); SETTER
                                        c->call = c->methods->accept; clear(c); }
void set_connect(struct connection *c) { if (!c) return; c->shutdown = 0; clear(c);
                                         c->call = c->methods->connect; clear(c); }
#ifdef PROGRAM
int main(void) { struct connection c = {1, 1, get_methods(), 0, 0};
                 set_accept(&c); set_connect(&c); return c.call(&c); }
#endif
"""
TABLE = MethodTable(("get_methods",), ("set_accept", "set_connect"), "Lost.")
# -fno-ipa-ra: in libssl, what clears the connection is in another source file.
PLAIN = ("-fno-ipa-ra", "-DACCEPT=shake_accept", "-DGETTER=", "-DSETTER=")
OPENSSL = MethodTable(("TLS_method",), ("SSL_set_accept_state", "SSL_set_connect_state"), "Lost.")
NOT_SEEN = "Handshakes that SSL_read or SSL_write start are not seen."

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]


def found_in(elf: Elf, table: MethodTable) -> set[int]:
    """Addresses of the functions behind a table."""
    mapped = MappedObject(elf.path, elf.path, "00:00", 1, "", False, ())
    symbols = tuple(elf.find(compile_names([*table.getters, *table.setters])))
    return {symbol.address for symbol in functions_in(table, OpenObject(mapped, elf, symbols))}


@pytest.mark.parametrize(
    "flags",
    [
        ("-shared", "-fPIC"),
        ("-shared", "-fPIC", "-O2", "-fcf-protection=full"),
        ("-shared", "-fPIC", "-Wl,-z,pack-relative-relocs"),
        ("-pie", "-fPIE", "-DPROGRAM"),
        ("-no-pie", "-fno-pie", "-DPROGRAM"),
        ("-shared", "-fPIC", "-Os"),
    ],
    ids=["shared", "cet", "packed", "pie", "fixed", "through the stack"],
)
def test_the_functions_are_those_of_the_source(compile_c: Compile, flags: tuple[str, ...]) -> None:
    with Elf(compile_c(SOURCE, *PLAIN, *flags)) as elf:
        named = elf.find(compile_names(["shake_*"]))
        assert found_in(elf, TABLE) == {symbol.address for symbol in named}
        assert len(named) == 2


@pytest.mark.parametrize(
    ("flags", "table"),
    [
        (("-DACCEPT=shake_connect", "-DGETTER=", "-DSETTER="), TABLE),
        (("-DACCEPT=shake_accept", "-DGETTER=clear(0);", "-DSETTER="), TABLE),
        ((*PLAIN[:3], "-DSETTER=c->open = 1; *(void **)c = (void *)c->methods->connect;"), TABLE),
        (PLAIN, MethodTable(("get_methods",), ("set_accept", "set_nothing"), "Lost.")),
        (PLAIN, MethodTable(("undefined",), ("set_accept", "set_connect"), "Lost.")),
        (PLAIN, MethodTable(("get_methods",), ("set_accept", "clear"), "Lost.")),
    ],
    ids=[
        "same function",
        "getter calls",
        "two copies",
        "absent",
        "no table",
        "no setter",
    ],
)
def test_what_looks_different_gives_no_answer(
    compile_c: Compile, flags: tuple[str, ...], table: MethodTable
) -> None:
    with Elf(compile_c(SOURCE, *flags, "-shared", "-fPIC")) as elf:
        assert found_in(elf, table) == set()


def test_libssl_itself_installs_what_was_found(libraries: dict[str, Path]) -> None:
    library = ctypes.CDLL(str(libraries["libssl"]))
    for name in ("TLS_method", "SSL_CTX_new", "SSL_new"):
        getattr(library, name).restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_method())))
    connection = library.SSL_new(context)
    with Elf(libraries["libssl"]) as elf:
        symbols = {s.name: s for s in elf.find(compile_names(["TLS_method", *OPENSSL.setters]))}
        here = ctypes.cast(library.TLS_method, ctypes.c_void_p).value or 0
        base = here - symbols["TLS_method"].address
        installed = set()
        for name in OPENSSL.setters:
            slot = copied_slot(elf, symbols[name])
            assert slot is not None
            getattr(library, name)(ctypes.c_void_p(connection))
            installed.add(ctypes.c_uint64.from_address(connection + slot.copy).value - base)
        assert found_in(elf, OPENSSL) == installed
        assert len(installed) == 2
    library.SSL_free(ctypes.c_void_p(connection))
    library.SSL_CTX_free(context)


def plan_of(target_of: MakeTarget, *paths: Path) -> Plan:
    """The plan for a program of these files, as far as handshakes need it."""
    return plan(target_of(*paths), load_definitions(), Level.HANDSHAKE)


def test_a_plan_covers_both_sides_once(target_of: MakeTarget, libraries: dict[str, Path]) -> None:
    planned = plan_of(target_of, libraries["libc"], libraries["libssl"], libraries["libcrypto"])
    sites = [site for site in planned.sites if site.boundary == "handshake_call"]
    with Elf(libraries["libssl"]) as elf:
        expected = found_in(elf, OPENSSL)
    entries = [site.virtual_address for site in sites if site.event == "enter"]
    assert len(entries) == 2
    for address in expected:
        assert any(address <= entry < address + 32 for entry in entries)
    places = [(site.event, site.file_offset) for site in sites]
    assert len(set(places)) == len(places)
    assert any(site.event == "exit" for site in sites)
    assert {site.register for site in sites if site.event == "enter"} == {"rdi"}
    assert not any(site.function == "SSL_do_handshake" for site in planned.sites)
    assert "handshake_call" not in [entry.boundary for entry in planned.missing]


def without_table(library: Path, folder: Path) -> Path:
    """A copy of libssl in which the method table and its relocations are gone."""
    content = bytearray(library.read_bytes())
    with Elf(library) as elf:
        (getter,) = elf.find(compile_names(["TLS_method"]))
        start = returned_address(elf, getter)
        assert start is not None
        assert pointer_at(elf, start + 40) is not None
        relocations, table = elf.section(".rela.dyn"), elf.to_offset(start)
        assert relocations is not None
        assert table is not None
    content[table : table + 256] = bytes(256)
    for offset in range(relocations.offset, relocations.offset + relocations.size, 24):
        (address,) = struct.unpack_from("<Q", content, offset)
        if start <= address < start + 256:
            content[offset : offset + 24] = bytes(24)
    path = folder / "libssl.so.3"
    path.write_bytes(content)
    return path


CALLER = "int SSL_do_handshake(void *); int main(void) { return SSL_do_handshake(0) > 3 ? 5 : 6; }"


def test_without_its_table_libssl_is_probed_by_name(
    target_of: MakeTarget, libraries: dict[str, Path], tmp_path: Path, compile_c: Compile
) -> None:
    damaged = without_table(libraries["libssl"], tmp_path)
    program = compile_c(CALLER, "-O0", "-lssl", "-lcrypto")
    planned = plan_of(target_of, program, damaged, libraries["libcrypto"])
    sites = [site for site in planned.sites if site.boundary == "handshake_call"]
    # It leaves by a jump through a pointer, so its end is seen where it was called.
    assert {site.function for site in sites if site.event == "enter"} == {"SSL_do_handshake"}
    assert "main" in {site.function for site in sites if site.event == "exit"}
    lost = [entry for entry in planned.missing if entry.boundary == "handshake_call"]
    assert [entry.consequence for entry in lost] == [NOT_SEEN]
    assert "TLS_method" in lost[0].functions


def test_an_unknown_library_is_probed_by_name(
    compile_c: Compile, target_of: MakeTarget, libraries: dict[str, Path]
) -> None:
    source = "int SSL_do_handshake(void *c) { return *(int *)c; } int EVP_PKEY_generate(void);"
    flags = ("-shared", "-fPIC")
    unknown = compile_c(source, *flags, name="libssl.so.9")
    planned = plan_of(target_of, libraries["libc"], unknown, libraries["libcrypto"])
    sites = [site for site in planned.sites if site.boundary == "handshake_call"]
    assert {site.function for site in sites} == {"SSL_do_handshake"}
    assert NOT_SEEN in [entry.consequence for entry in planned.missing]


def test_a_truncated_library_is_one_clear_error(
    target_of: MakeTarget, libraries: dict[str, Path], tmp_path: Path
) -> None:
    content = libraries["libssl"].read_bytes()
    cut = tmp_path / "libssl.so.3"
    cut.write_bytes(content)
    target = target_of(libraries["libc"], cut, libraries["libcrypto"])
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(TlstaxError) as caught:
        plan(target, load_definitions(), Level.HANDSHAKE)
    assert caught.value.exit_code is ExitCode.TARGET


DEFINITION = """
id = "own"
kind = "tls"
name = "Own"
[detect]
objects = ["own*"]
symbols = ["shake"]
version = { text = "Own", pattern = 'Own' }
[[boundary]]
id = "shake"
action = "handshake_call"
level = "handshake"
functions = ["shake"]
missing = "Lost."
[boundary.method_table]
getter = "methods"
setters = ["set_a", "set_b"]
missing = "A part is lost."
"""


def test_a_definition_may_have_a_table() -> None:
    (boundary,) = parse_definition(DEFINITION.encode(), "own.toml").boundaries
    assert boundary.method_table == MethodTable(("methods",), ("set_a", "set_b"), "A part is lost.")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"set_b"', '"set_a"', "names a function twice"),
        ('"set_b"', '"set_*"', "not a function name"),
        ('getter = "methods"', "", "'getter' is missing"),
        ('"set_a", "set_b"', "", "not empty"),
        ('missing = "A', 'extra = 1\nmissing = "A', "unknown key: extra"),
    ],
)
def test_a_wrong_table_is_refused(before: str, after: str, reason: str) -> None:
    assert before in DEFINITION
    with pytest.raises(TlstaxError, match="cannot be used") as caught:
        parse_definition(DEFINITION.replace(before, after).encode(), "own.toml")
    assert reason in caught.value.why
    assert caught.value.exit_code is ExitCode.USAGE
