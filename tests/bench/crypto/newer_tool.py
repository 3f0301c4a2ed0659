# SPDX-License-Identifier: GPL-2.0-only
"""Fetch a tool of a newer Debian, unpack it, and print how to call it here.

    newer_tool.py bpftrace    the program, with which `make test` and `make test-bpftrace` try ours
    newer_tool.py profile     the directory of profile-libbpf, which Debian 12's libbpf-tools lacks

Its own dynamic linker and libraries run it, so that nothing of the host changes. It is kept below
the cache directory of the user.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from tlstax.workloads.servers import debian_root
from tlstax.workloads.servers.catalogue import Source

SUITE = "trixie"


class Newer(NamedTuple):
    """A program of a package of that suite."""

    package: str
    program: str
    """Where it lies."""
    script: str
    """What starts it, in the directory in which all of it is kept."""
    libraries: tuple[str, ...] = ()
    """Folders of libraries beside the usual one."""


TOOLS = {
    "bpftrace": Newer("bpftrace", "usr/bin/bpftrace", "bpftrace", ("usr/lib/llvm-*/lib",)),
    "profile": Newer("libbpf-tools", "usr/sbin/profile-libbpf", "bin/profile-libbpf"),
}


def fetch(tool: Newer) -> Path:
    """What starts the tool, made unless it is there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / f"tlstax-{tool.package}" / SUITE
    script = folder / tool.script
    if not script.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source = Source("debian-root", tool.package, suite=SUITE)
        root = debian_root.build(source, folder, lambda text: print(text, file=sys.stderr))
        libraries = [root / "usr/lib/x86_64-linux-gnu"]
        libraries += [found for pattern in tool.libraries for found in root.glob(pattern)]
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f"#!/bin/sh\nexec '{root}/usr/lib64/ld-linux-x86-64.so.2' --library-path"
            f" '{':'.join(map(str, libraries))}'"
            f" --argv0 {script.name} '{root / tool.program}' \"$@\"\n"
        )
        script.chmod(0o755)
    return script


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    found = fetch(TOOLS[name])
    print(found if name == "bpftrace" else found.parent)
