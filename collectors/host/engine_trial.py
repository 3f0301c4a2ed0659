# SPDX-License-Identifier: GPL-2.0-only
"""Doctor's trial of tlstax's own BPF objects: each is loaded through the verifier, then closed."""

import ctypes
import os
from pathlib import Path
from typing import Final

from tlstax import probes
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.libbpf import open_library
from tlstax.collectors.host.settings import LackError

GUARDED: Final = "ledger_guarded.bpf.o"
"""The ledger with uprobe programs that cannot be preempted (Linux 6.10; preflight asks for it)."""

SOCKET_PROGRAMS: Final = (b"on_receive", b"on_send")
"""Those at tracepoints that not every kernel has: they are loaded only where it has them."""


def _load(library: ctypes.CDLL, path: str) -> None:
    """Load one object file and close it; OSError when the kernel or libbpf refuses."""
    handle = library.bpf_object__open_file(os.fsencode(path), None)
    if not handle:
        error = ctypes.get_errno()
        raise OSError(error, f"not opened: {os.strerror(error)}", os.path.basename(path))
    try:
        for name in SOCKET_PROGRAMS if not HOST.socket_tracepoints else ():
            if program := library.bpf_object__find_program_by_name(handle, name):
                library.bpf_program__set_autoload(program, False)
        error = -library.bpf_object__load(handle)
        if error > 0:
            raise OSError(error, f"not loaded: {os.strerror(error)}", os.path.basename(path))
    finally:
        library.bpf_object__close(handle)


def engine_object() -> str:
    """Load every bundled BPF object, but the one that only newer kernels take (`GUARDED`)."""
    folder = Path(probes.__file__).with_name("bpf")
    objects = sorted(path for path in folder.glob("*.bpf.o") if path.name != GUARDED)
    if not objects:
        raise LackError("not built")
    library = open_library()
    for path in objects:
        _load(library, str(path))
    return "the verifier took " + ", ".join(path.name for path in objects)
