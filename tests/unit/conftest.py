# SPDX-License-Identifier: GPL-2.0-only
"""Real binaries for the tests of ELF files, placement and symbols."""

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target, open_target

# How fast an example is says more of the host than of what is tested.
settings.register_profile("tlstax", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tlstax")

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]


@pytest.fixture
def compile_c(tmp_path: Path) -> Compile:
    """A function that compiles C source and returns the path of the program."""

    def run(source: str, *flags: str, name: str = "program") -> Path:
        path = tmp_path / f"{name}.c"
        path.write_text(source)
        output = tmp_path / name
        options = ["-O1", "-fcf-protection=none", *flags]
        subprocess.run(["gcc", "-o", output, path, *options], check=True, capture_output=True)
        return output

    return run


@pytest.fixture
def target_of() -> MakeTarget:
    """A function that makes a target of files, the first of which is the program."""

    def make(*paths: Path) -> Target:
        objects = []
        for number, path in enumerate(paths):
            with Elf(path) as elf:
                build_id = elf.build_id
            objects.append(MappedObject(str(path), str(path), "00:00", number, build_id, False, ()))
        return Target(0, "test", str(paths[0]), 0, tuple(objects))

    return make


@pytest.fixture(scope="session")
def libraries() -> dict[str, Path]:
    """The system's libssl, libcrypto and libc, by these names, as this process maps them."""
    assert ssl.OPENSSL_VERSION_INFO >= (3,), "the tests of libssl are for OpenSSL 3"
    maps = Path("/proc/self/maps").read_text()
    found = {}
    for line in maps.splitlines():
        path = Path(line.split()[-1])
        stem = path.name.partition(".so")[0]
        if stem in ("libssl", "libcrypto", "libc"):
            found[stem] = path
    return found


@pytest.fixture
def tls_process() -> Iterator[Target]:
    """A process with libssl mapped that does nothing."""
    code = "import ssl, sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield open_target(process.pid)
