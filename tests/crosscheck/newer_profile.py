# SPDX-License-Identifier: GPL-2.0-only
"""Fetch the libbpf-tools of a newer Debian, and print a directory with its profile to call here.

Debian 12's libbpf-tools has none. Its own dynamic linker and libraries run it, so that nothing of
the host changes. It is kept below the cache directory of the user.
"""

import os
import shutil
import sys
from pathlib import Path

from tlstax.workloads.servers import debian_root
from tlstax.workloads.servers.catalogue import Source

SOURCE = Source("debian-root", "libbpf-tools", suite="trixie")


def main() -> None:
    """Print the directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tlstax-libbpf-tools" / SOURCE.suite
    script = folder / "bin/profile-libbpf"
    if not script.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        root = debian_root.build(SOURCE, folder, lambda text: print(text, file=sys.stderr))
        script.parent.mkdir()
        script.write_text(
            f"#!/bin/sh\nexec '{root}/usr/lib64/ld-linux-x86-64.so.2' --library-path"
            f" '{root}/usr/lib/x86_64-linux-gnu' --argv0 profile-libbpf"
            f" '{root}/usr/sbin/profile-libbpf' \"$@\"\n"
        )
        script.chmod(0o755)
    print(script.parent)


if __name__ == "__main__":
    main()
