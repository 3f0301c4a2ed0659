# SPDX-License-Identifier: GPL-2.0-only
"""Fetch the bpftrace of a newer Debian, unpack it, and print how to call it here.

Its own dynamic linker and libraries run it, so that nothing of the host changes. It is kept below
the cache directory of the user; `make test` and `make test-bpftrace` try the programs with it.
"""

import os
import shutil
import sys
from pathlib import Path

from tlstax.workloads.servers import debian_root
from tlstax.workloads.servers.catalogue import Source

SOURCE = Source("debian-root", "bpftrace", suite="trixie")


def main() -> None:
    """Print the path of the program that starts it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tlstax-bpftrace" / SOURCE.suite
    script = folder / "bpftrace"
    if not script.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        root = debian_root.build(SOURCE, folder, lambda text: print(text, file=sys.stderr))
        libraries = [root / "usr/lib/x86_64-linux-gnu", *root.glob("usr/lib/llvm-*/lib")]
        script.write_text(
            f"#!/bin/sh\nexec '{root}/usr/lib64/ld-linux-x86-64.so.2' --library-path"
            f" '{':'.join(map(str, libraries))}'"
            f" --argv0 bpftrace '{root}/usr/bin/bpftrace' \"$@\"\n"
        )
        script.chmod(0o755)
    print(script)


if __name__ == "__main__":
    main()
