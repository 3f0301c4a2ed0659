# SPDX-License-Identifier: GPL-2.0-only
"""Names of addresses: every kind of table, nameless functions, the kernel, hostile names."""

import lzma
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.symbols import KernelSymbols, Place, Symbolizer, demangle, stem
from tlstax.collectors.process.target import Target
from tlstax.tests.unit.process.examples import BASE, address_of, mapped, place

Compile = Callable[..., Path]
SOURCE = """
int first(int a) { return a * 3 + 1; }
int second(int a) { return a * 5 + 2; }
int main(void) { return first(1) + second(2); }
"""


@pytest.mark.parametrize("flags", [["-pie", "-fPIE"], ["-no-pie"], ["-static"]])
def test_symtab(compile_c: Compile, flags: list[str]) -> None:
    path = compile_c(SOURCE, *flags)
    address, size = address_of(path, "second")
    found = place(path, address + 2)
    assert (found.symbol, found.symbol_offset_bytes, found.source) == ("second", 2, "symtab")
    assert found.object == str(path)
    assert place(path, address + size - 1).symbol == "second"


def test_stripped_gives_the_place_and_the_function_start(compile_c: Compile) -> None:
    path = compile_c(SOURCE)
    address, _ = address_of(path, "second")
    subprocess.run(["strip", path], check=True)
    found = place(path, address + 3)
    assert found.symbol == f"[{path.name}+{address:#x}]"
    assert (found.symbol_offset_bytes, found.source, found.code) == (3, "none", "")


def test_between_two_symbols_is_nobodys(libraries: dict[str, Path]) -> None:
    """SSL_version is followed by a nameless function: it must not get the name."""
    path = libraries["libssl"]
    with Elf(path) as elf:
        symbols = elf.find(re.compile(r"\w+"))
    covered = {(s.address, s.address + s.size) for s in symbols}
    end = max(end for _, end in covered)
    gaps = [
        left for _, left in sorted(covered)
        if left < end and not any(start <= left + 16 < stop for start, stop in covered)
    ]  # fmt: skip
    assert len(gaps) > 100
    for left in gaps[:20]:
        found = place(path, left + 16)
        assert re.fullmatch(r"\[libssl\+0x[0-9a-f]+\]", found.symbol)
        assert found.source == "none"


def test_dynsym(compile_c: Compile) -> None:
    path = compile_c(SOURCE, "-rdynamic", "-s")
    address, _ = address_of(path, "first")
    assert place(path, address).source == "dynsym"
    assert place(path, address).symbol == "first"


@pytest.fixture
def separated(compile_c: Compile, tmp_path: Path) -> tuple[Path, Path, int]:
    """A stripped program, its debug file elsewhere, and the address of `second`."""
    path = compile_c(SOURCE, "-g")
    address, _ = address_of(path, "second")
    debug = tmp_path / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    subprocess.run(["strip", path], check=True)
    return path, debug, address


def test_debug_link(separated: tuple[Path, Path, int]) -> None:
    path, debug, address = separated
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", path], check=True)
    assert place(path, address).source == "debuglink"
    assert place(path, address).symbol == "second"
    (path.parent / ".debug").mkdir()
    debug.rename(path.parent / ".debug" / debug.name)
    assert place(path, address).symbol == "second"
    (path.parent / ".debug" / debug.name).unlink()
    assert place(path, address).source == "none"


def test_debug_file_by_build_id(separated: tuple[Path, Path, int], tmp_path: Path) -> None:
    path, debug, address = separated
    with Elf(path) as elf:
        build_id = elf.build_id
    directory = tmp_path / "root/usr/lib/debug/.build-id" / build_id[:2]
    directory.mkdir(parents=True)
    debug.rename(directory / f"{build_id[2:]}.debug")
    assert place(path, address, str(tmp_path / "root")).source == "buildid"


def test_a_debug_file_that_is_a_link_is_found_below_the_root(
    separated: tuple[Path, Path, int], tmp_path: Path
) -> None:
    """A container's absolute links lead to its own files."""
    path, debug, address = separated
    with Elf(path) as elf:
        build_id = elf.build_id
    root = tmp_path / "root"
    directory = root / "usr/lib/debug/.build-id" / build_id[:2]
    directory.mkdir(parents=True)
    (root / "symbols").mkdir()
    debug.rename(root / "symbols/of_program")
    (directory / f"{build_id[2:]}.debug").symlink_to("/symbols/of_program")
    assert place(path, address, str(root)).source == "buildid"


def test_a_debug_file_of_another_build_is_not_believed(
    separated: tuple[Path, Path, int], compile_c: Compile
) -> None:
    path, debug, address = separated
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", path], check=True)
    debug.write_bytes(compile_c(SOURCE + "int third;", "-g", name="other").read_bytes())
    assert place(path, address).source == "none"
    debug.write_bytes(b"\x7fELF damaged")
    assert place(path, address).source == "none"


def test_without_a_build_id_the_checksum_decides(compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(SOURCE, "-g", "-Wl,--build-id=none")
    address, _ = address_of(path, "second")
    debug = tmp_path / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", "--strip-all", path], check=True)
    assert place(path, address).source == "debuglink"
    debug.write_bytes(debug.read_bytes() + b"\0")
    assert place(path, address).source == "none"


def test_compressed_debug_data(separated: tuple[Path, Path, int], tmp_path: Path) -> None:
    path, debug, address = separated
    packed = tmp_path / "packed"
    packed.write_bytes(lzma.compress(debug.read_bytes()))
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={packed}", path], check=True)
    assert place(path, address).source == "debugdata"
    packed.write_bytes(lzma.compress(debug.read_bytes())[:-50])
    subprocess.run(["objcopy", f"--update-section=.gnu_debugdata={packed}", path], check=True)
    assert place(path, address).symbol.startswith(("[", "second"))
    packed.write_bytes(b"not compressed")
    subprocess.run(["objcopy", f"--update-section=.gnu_debugdata={packed}", path], check=True)
    assert place(path, address).source == "none"


def test_cpp_names() -> None:
    assert demangle("_Z10do_commandP3THDb") == "do_command(THD*, bool)"
    assert demangle("main") == "main"


@pytest.mark.parametrize(
    "name",
    [
        "_Z",
        "_Zbad name",
        "_Z" + "S_" * 5000,
        "<script>alert(1)</script>",
        "_Z\udcff",
        "a\n\x1b[31m",
    ],
)
def test_what_cannot_be_demangled_stays_as_it_is(name: str) -> None:
    assert demangle(name) == name


def test_hostile_symbol_names_pass_through(compile_c: Compile) -> None:
    name = "<script>alert(1)</script>"
    path = compile_c(SOURCE)
    subprocess.run(["objcopy", f"--redefine-sym=second={name}", path], check=True)
    address, _ = address_of(path, re.escape(name))
    assert place(path, address).symbol == name


def test_cpp_symbols_of_the_server() -> None:
    path = Path("/usr/sbin/mariadbd")
    address, _ = address_of(path, "_Z16dispatch_command.*")
    found = place(path, address + 20)
    assert found.symbol.startswith("dispatch_command(enum_server_command, THD*")
    assert found.source == "dynsym"


@pytest.fixture
def live(tls_process: Target) -> Iterator[tuple[Target, Symbolizer]]:
    symbolizer = Symbolizer(tls_process)
    yield tls_process, symbolizer
    symbolizer.close()


def test_a_live_process(live: tuple[Target, Symbolizer], libraries: dict[str, Path]) -> None:
    target, symbolizer = live
    entry = next(e for e in target.objects if e.name == libraries["libssl"].name)
    address, _ = address_of(libraries["libssl"], "SSL_do_handshake")
    with Elf(libraries["libssl"]) as elf:
        offset = elf.to_offset(address)
    assert offset is not None
    (segment,) = [s for s in entry.segments if 0 <= offset - s.file_offset < s.end - s.start]
    found = symbolizer.user(segment.start + offset - segment.file_offset + 4)
    assert found.symbol == "SSL_do_handshake"
    assert found.offset_bytes == offset + 4
    assert found.build_id == entry.build_id
    assert symbolizer.user(8) == Place("", "", 0, "[unknown]", 0, "none", "")
    maps = Path(f"/proc/{target.pid}/maps").read_text()
    vdso = re.search(r"([0-9a-f]+)-\S+ r-xp .*\[vdso\]", maps)
    assert vdso is not None
    assert symbolizer.user(int(vdso[1], 16) + 100).object == "[vdso]"


def test_objects_mapped_later_are_found(live: tuple[Target, Symbolizer]) -> None:
    target, whole = live
    some = replace(target, objects=target.objects[:1])
    late = Symbolizer(some)
    address = target.objects[-1].segments[0].start + 64
    assert late.user(address) == whole.user(address)
    late.close()


def test_the_kernel(tmp_path: Path) -> None:
    listing = tmp_path / "kallsyms"
    listing.write_text(
        "ffffffff81000000 T _text\n"
        "ffffffff810000f0 t __pfx_run\n"
        "ffffffff81000100 t run\n"
        "ffffffff81000200 d data\n"
        "ffffffffc0000000 t in_module\t[some_module]\n"
        "ffffffffc0000008 t $x\t[some_module]\n"
        "ffffffff81000300 W later\n"
    )
    kernel = KernelSymbols(listing)
    assert kernel.place(0xFFFFFFFF81000180)[3:6] == ("run", 0x80, "kallsyms")
    assert kernel.place(0xFFFFFFFF81000305).symbol == "later"
    assert kernel.place(0xFFFFFFFFC0000010).symbol == "in_module"
    assert kernel.place(0xFFFFFFFF81000180).offset_bytes == 0, "kernel addresses stay secret"
    assert kernel.place(0x1000).symbol == "[kernel]"
    listing.write_text("0000000000000000 T _text\n")
    assert KernelSymbols(listing).place(0xFFFFFFFF81000180).symbol == "[kernel]"
    assert KernelSymbols(tmp_path / "absent").place(5).source == "none"


def test_a_file_that_was_replaced_is_not_read(compile_c: Compile) -> None:
    path = compile_c(SOURCE)
    address, _ = address_of(path, "second")
    old = replace(mapped(path), file_identity=(path.stat().st_dev, path.stat().st_ino + 1))
    symbolizer = Symbolizer(Target(1 << 22, "test", str(path), 0, (old,)))
    assert symbolizer.user(BASE + address).source == "none"
    symbolizer.close()


def test_names_outlive_the_process(tls_process: Target, libraries: dict[str, Path]) -> None:
    symbolizer = Symbolizer(replace(tls_process, pid=(1 << 22) - 1))
    entry = next(e for e in tls_process.objects if e.name == libraries["libssl"].name)
    before = symbolizer.user(entry.segments[0].start + 0x8000)
    assert before.object == entry.path
    assert symbolizer.user(8).symbol == "[unknown]"
    symbolizer.close()


def test_stem() -> None:
    assert stem("/usr/lib/libcrypto.so.3") == "libcrypto"
    assert stem("mariadbd") == "mariadbd"
