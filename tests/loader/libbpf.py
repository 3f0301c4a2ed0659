# SPDX-License-Identifier: GPL-2.0-only
"""BPF objects through libbpf: open one, set it up, load it, attach its programs.

libbpf does the CO-RE relocation, so the target host needs no compiler and no kernel headers.
"""

import ctypes
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.libbpf import PRINT_CALLBACK, load_library
from tlstax.probes.objects import object_paths

_KEPT_LINES: Final = 40


class UprobeOptions(ctypes.Structure):
    """struct bpf_uprobe_opts (libbpf.h)."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("ref_ctr_offset", ctypes.c_size_t),
        ("bpf_cookie", ctypes.c_uint64),
        ("retprobe", ctypes.c_bool),
        ("func_name", ctypes.c_char_p),
    )


class IteratorOptions(ctypes.Structure):
    """struct bpf_iter_attach_opts (libbpf.h)."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("link_info", ctypes.c_void_p),
        ("link_info_len", ctypes.c_uint32),
    )


class Link:
    """An attached program; `close` detaches it. The kernel detaches it when the process dies."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library = library
        self._handle: int | None = handle

    @property
    def fd(self) -> int:
        """The link's file descriptor."""
        return int(self._library.bpf_link__fd(self._handle))

    def close(self) -> None:
        """Detach."""
        if self._handle is not None:
            self._library.bpf_link__destroy(self._handle)
            self._handle = None


class LinkGroup:
    """Links that are closed together.

    Closing a link blocks until the kernel has removed its probes, 30 to 100 ms on a busy host. So
    each link is closed by a separate thread: all are removed in parallel.
    """

    def __init__(self) -> None:
        self._closers: list[Callable[[], object]] = []

    def callback(self, close: Callable[..., object], *arguments: object) -> None:
        """Add what closes a link."""
        self._closers.append(partial(close, *arguments))

    def close(self) -> None:
        """Detach all of them."""
        threads = [Thread(target=close) for close in reversed(self._closers)]
        self._closers.clear()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class BpfObject:
    """One BPF object file, opened, configured and loaded.

    Raises TlstaxError HOST with the last lines that libbpf and the verifier printed.
    """

    def __init__(self, path: Path) -> None:
        self.library = load_library()
        self.name = path.name
        self.log: list[str] = []
        self._callback = PRINT_CALLBACK(self._keep_line)
        self.library.libbpf_set_print(self._callback)
        self._format = _formatter()
        handle = self.library.bpf_object__open_file(str(path).encode(), None)
        if not handle:
            raise self.error(f"cannot open {path.name}", ctypes.get_errno())
        self._handle: int | None = handle

    def _keep_line(self, level: int, template: int, arguments: int) -> int:
        if level <= 1:  # LIBBPF_WARN, LIBBPF_INFO
            buffer = ctypes.create_string_buffer(2048)
            self._format(buffer, len(buffer), template, arguments)
            self.log.append(buffer.value.decode(errors="replace").rstrip())
            del self.log[:-_KEPT_LINES]
        return 0

    def error(self, what: str, number: int) -> TlstaxError:
        """A TlstaxError that quotes the messages of libbpf and the kernel."""
        reason = os.strerror(abs(number)) if number else "libbpf gave no reason"
        detail = "; ".join(line for line in self.log[-4:] if line)
        return TlstaxError(
            what,
            f"{reason} ({detail})" if detail else reason,
            "run `tlstax doctor` to see what this host lacks",
            ExitCode.HOST,
        )

    def map(self, name: str) -> int:
        """Handle of a map."""
        handle = self.library.bpf_object__find_map_by_name(self._open(), name.encode())
        if not handle:
            raise KeyError(name)
        return int(handle)

    def map_ending(self, suffix: str) -> int:
        """Handle of a data section's map: libbpf prefixes its name with the object's."""
        opened = self._open()
        handle = self.library.bpf_object__next_map(opened, None)
        while handle:
            if self.library.bpf_map__name(handle).decode().endswith(suffix):
                return int(handle)
            handle = self.library.bpf_object__next_map(opened, handle)
        raise KeyError(suffix)

    def _open(self) -> int:
        """The handle; libbpf itself would read the memory of an object that was closed."""
        if self._handle is None:
            raise RuntimeError("the BPF object was closed")
        return self._handle

    def map_fd(self, name: str) -> int:
        """File descriptor of a loaded map."""
        return int(self.library.bpf_map__fd(self.map(name)))

    def map_fd_ending(self, suffix: str) -> int:
        """File descriptor of a loaded data section's map."""
        return int(self.library.bpf_map__fd(self.map_ending(suffix)))

    def value_bytes(self, name: str) -> int:
        """Size of a map's value."""
        return int(self.library.bpf_map__value_size(self.map(name)))

    def require_value_bytes(self, **expected: int) -> None:
        """Raise TlstaxError (HOST) unless the values of these maps have the expected size."""
        for name, size in expected.items():
            if self.value_bytes(name) != size:
                raise TlstaxError(
                    f"{self.name} was built for another version of tlstax",
                    f"values of map {name} have {self.value_bytes(name)} bytes, expected {size}",
                    "rebuild it with `make bpf`",
                    ExitCode.HOST,
                )

    def resize(self, name: str, entries_count: int) -> None:
        """Set a map's capacity, before load()."""
        self._check(
            self.library.bpf_map__set_max_entries(self.map(name), entries_count), f"resize {name}"
        )

    def set_constants(self, section_suffix: str, value: bytes) -> None:
        """Fill a read-only data section, before load()."""
        handle = self.map_ending(section_suffix)
        self._check(
            self.library.bpf_map__set_initial_value(handle, value, len(value)),
            f"set {section_suffix}",
        )

    def program(self, name: str) -> int:
        """Handle of a program."""
        handle = self.library.bpf_object__find_program_by_name(self._handle, name.encode())
        if not handle:
            raise KeyError(name)
        return int(handle)

    def program_fd(self, name: str) -> int:
        """File descriptor of a loaded program."""
        return int(self.library.bpf_program__fd(self.program(name)))

    def set_attach_type(self, name: str, attach_type: int) -> None:
        """Set the expected attach type, before load()."""
        self._check(
            self.library.bpf_program__set_expected_attach_type(self.program(name), attach_type),
            f"set attach type of {name}",
        )

    def set_autoload(self, name: str, wanted: bool) -> None:
        """Set whether load() loads a program: false when the kernel lacks its attach point."""
        self._check(
            self.library.bpf_program__set_autoload(self.program(name), wanted),
            f"set whether {name} is loaded",
        )

    def load(self) -> None:
        """Relocate, verify and load everything."""
        self._check(self.library.bpf_object__load(self._handle), "the kernel refused the programs")

    def attach(self, name: str) -> Link:
        """Attach at the place that the program's section names (tp_btf)."""
        return self._link(self.library.bpf_program__attach(self.program(name)), f"attach {name}")

    def attach_perf_event(self, name: str, event_fd: int) -> Link:
        """Run a program at each overflow of a perf event; the link owns `event_fd`."""
        handle = self.library.bpf_program__attach_perf_event(self.program(name), event_fd)
        return self._link(handle, f"attach {name}")

    def attach_uprobe(
        self, name: str, pid: int, path: str, offset_bytes: int, cookie: int, is_return: bool
    ) -> Link:
        """One uprobe as a perf event (any kernel with BPF cookies, 5.15+)."""
        options = UprobeOptions(ctypes.sizeof(UprobeOptions), 0, cookie, is_return, None)
        handle = self.library.bpf_program__attach_uprobe_opts(
            self.program(name), pid, path.encode(), offset_bytes, ctypes.byref(options)
        )
        return self._link(handle, f"attach {name} to {path}+{offset_bytes:#x}")

    def attach_iterator(self, name: str, pid: int) -> Link:
        """An iterator over the threads of a process; kernels before 6.1 iterate all processes."""
        attach, program = self.library.bpf_program__attach_iter, self.program(name)
        target = (ctypes.c_uint32 * 3)(0, pid, 0)  # union bpf_iter_link_info: tid, pid, pid_fd
        options = IteratorOptions(
            ctypes.sizeof(IteratorOptions), ctypes.addressof(target), ctypes.sizeof(target)
        )
        handle = attach(program, ctypes.byref(options)) or attach(program, None)
        return self._link(handle, f"attach {name}")

    def iterate(self, link: Link, name: str) -> None:
        """Run an attached iterator once over everything it iterates."""
        fd = self.library.bpf_iter_create(link.fd)
        if fd < 0:
            raise self.error(f"cannot run {name}", fd)
        try:
            while os.read(fd, 4096):
                pass
        finally:
            os.close(fd)

    def run_iterator(self, name: str, pid: int | None = None) -> None:
        """Attach an iterator, run it once over everything, or over a process, and detach it."""
        if pid is None:
            handle = self.library.bpf_program__attach_iter(self.program(name), None)
            link = self._link(handle, f"attach {name}")
        else:
            link = self.attach_iterator(name, pid)
        try:
            self.iterate(link, name)
        finally:
            link.close()

    def _link(self, handle: int | None, what: str) -> Link:
        if not handle:
            raise self.error(f"cannot {what}", ctypes.get_errno())
        return Link(self.library, handle)

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            raise self.error(what, result)

    def close(self) -> None:
        """Unload; the kernel frees maps and programs when their last file descriptor closes."""
        if self._handle is not None:
            self.library.bpf_object__close(self._handle)
            self._handle = None
            self.library.libbpf_set_print(PRINT_CALLBACK())  # the callback dies with this object

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def object_path(name: str) -> Path:
    """The compiled programs for this machine. TlstaxError HOST when they were not built."""
    return object_paths()[name]


def _formatter() -> Any:
    """C's vsnprintf, for libbpf's print callback (a va_list passes through as a pointer)."""
    function = ctypes.CDLL(None).vsnprintf
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    return function
