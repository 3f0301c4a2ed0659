# SPDX-License-Identifier: GPL-2.0-only
"""A client program of this host with the OpenSSL of a server of the catalogue.

A later OpenSSL may need a later C library than this host has. So the program is started by the
loader of that server's root, with its C library, which also serves programs of an earlier Debian.
With `c_library` this host's own OpenSSL is started in the same way: then two clients differ in
OpenSSL and in nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers import installing, other_openssl
from tlstax.workloads.servers.catalogue import find_kind, load_catalogue

C_LIBRARY: Final = (
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2"),
)
"""What belongs to one build of the C library and may be loaded by name."""
LOADER: Final = "ld-linux-*.so.*"


@dataclass(frozen=True)
class OtherLibraries:
    """What a client is to load: names of servers, or other_openssl.HOST."""

    openssl: str = other_openssl.HOST
    c_library: str = ""  # of which server; "": of the one that `openssl` names

    def __post_init__(self) -> None:
        """TlstaxError (USAGE) for a name that means nothing."""
        roots = [kind.name for kind in load_catalogue().values() if kind.source.suite]
        if self.openssl not in (other_openssl.HOST, *roots):
            raise _refuse(f"openssl = {self.openssl!r}", [other_openssl.HOST, *roots])
        if self.c_library and self.c_library not in roots:
            raise _refuse(f"c_library = {self.c_library!r}", roots)

    def prefix(self, directory: Path) -> tuple[str, ...]:
        """What stands before the program's command; () for this host's own libraries.

        Servers are installed first. Links to the files are made in `directory`.
        TlstaxError (HOST) if a file is missing.
        """
        root = self.c_library or ("" if self.openssl == other_openssl.HOST else self.openssl)
        if not root:
            return ()
        loader = _find_loader(root)
        c_library = (loader.parent / name for name in C_LIBRARY)
        place = directory / f"libraries-{self.openssl}-{root}"
        if not place.exists():
            place.mkdir(mode=0o700)
            for path in (*other_openssl.files_of(self.openssl), *c_library):
                (place / path.name).symlink_to(path)
        return (str(loader), "--library-path", str(place))


def _find_loader(name: str) -> Path:
    """The dynamic loader of a server's root, beside its C library."""
    kind = find_kind(name)
    installing.install(kind)
    found = sorted(installing.place_of(kind).glob(f"usr/lib/*/{LOADER}"))
    if not found:
        raise TlstaxError(
            f"cannot take the C library of '{name}'",
            "its root has no dynamic loader",
            f"Remove it with `tlstax lab servers remove {name}`, then run this again",
            ExitCode.HOST,
        )
    return found[0]


def _refuse(what: str, known: Iterable[str]) -> TlstaxError:
    return TlstaxError(
        f"cannot start a client with {what}",
        f"servers whose libraries a client can load are {', '.join(known)}",
        "Choose one of them",
        ExitCode.USAGE,
    )
