# SPDX-License-Identifier: GPL-2.0-only
"""Doctor's trial of tlstax's own BPF objects: each is loaded through the verifier, then closed."""

import ctypes
import os
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.libbpf import open_library
from tlstax.collectors.host.settings import LackError
from tlstax.probes.objects import object_paths

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
    """Load this machine's BPF objects, but the one that only newer kernels take (`GUARDED`)."""
    try:
        objects = object_paths()
    except TlstaxError as error:
        raise LackError(f"{error.what}: {error.why}") from error
    library, names = open_library(), [name for name in objects if name != GUARDED]
    for name in names:
        _load(library, str(objects[name]))
    return "the verifier took " + ", ".join(names)
