# SPDX-License-Identifier: GPL-2.0-only
"""Walks a recorded stack with libdw (elfutils): registers and memory come from a sample.

Through ctypes: Debian's libdw1 is enough, without its headers. Offsets and names: libdwfl.h.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, c_bool, c_int, c_uint, c_uint64, c_void_p
from typing import Any, Final

FRAMES_MOST: Final = 128
_OK, _ABORT = 0, 1

NEXT_THREAD = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p))
GET_THREAD = CFUNCTYPE(c_bool, c_void_p, c_int, c_void_p, POINTER(c_void_p))
MEMORY_READ = CFUNCTYPE(c_bool, c_void_p, c_uint64, POINTER(c_uint64), c_void_p)
SET_REGISTERS = CFUNCTYPE(c_bool, c_void_p, c_void_p)
EACH_FRAME = CFUNCTYPE(c_int, c_void_p, c_void_p)


class _DwflCallbacks(ctypes.Structure):
    _fields_ = tuple(
        (name, c_void_p)
        for name in ("find_elf", "find_debuginfo", "section_address", "debuginfo_path")
    )


class _ThreadCallbacks(ctypes.Structure):
    _fields_ = (
        ("next_thread", NEXT_THREAD),
        ("get_thread", GET_THREAD),
        ("memory_read", MEMORY_READ),
        ("set_initial_registers", SET_REGISTERS),
        ("detach", c_void_p),
        ("thread_detach", c_void_p),
    )


class Debugger:
    """libdw's view of one process."""

    def __init__(self, pid: int) -> None:
        """Read the modules of the process. OSError if libdw cannot."""
        self._pid = pid
        self._library = library = ctypes.CDLL("libdw.so.1")
        for name in ("dwfl_begin", "dwfl_errmsg"):
            getattr(library, name).restype = c_void_p
        self._callbacks = _DwflCallbacks(
            *(
                ctypes.cast(getattr(library, name), c_void_p)
                for name in ("dwfl_linux_proc_find_elf", "dwfl_standard_find_debuginfo")
            )
        )
        self._dwfl = c_void_p(library.dwfl_begin(ctypes.byref(self._callbacks)))
        if not self._dwfl:
            raise OSError(self._error())
        if library.dwfl_linux_proc_report(self._dwfl, c_int(pid)):
            raise OSError(self._error())
        if library.dwfl_report_end(self._dwfl, None, None):
            raise OSError(self._error())
        self._registers: Sequence[int] = ()
        self._pc, self._start, self._memory = 0, 0, b""
        self._found: list[tuple[int, bool]] = []
        self._functions: list[Any] = [
            NEXT_THREAD(lambda *_: 0),
            GET_THREAD(self._get_thread),
            MEMORY_READ(self._read),
            SET_REGISTERS(self._set_registers),
            EACH_FRAME(self._keep),
        ]
        self._thread_callbacks = _ThreadCallbacks(*self._functions[:4], None, None)
        attached = library.dwfl_attach_state(
            self._dwfl, None, c_int(pid), ctypes.byref(self._thread_callbacks), c_void_p(1)
        )
        if not attached:
            raise OSError(self._error())
        self._each: Callable[..., Any] = self._functions[4]

    def _error(self) -> str:
        text = self._library.dwfl_errmsg(c_int(-1))
        return ctypes.string_at(text).decode() if text else "libdw gave no reason"

    def _get_thread(self, _dwfl: int, _tid: int, _argument: int, result: Any) -> bool:
        result[0] = 1
        return True

    def _read(self, _dwfl: int, address: int, result: Any, _argument: int) -> bool:
        place = address - self._start
        if not 0 <= place <= len(self._memory) - 8:
            return False
        result[0] = int.from_bytes(self._memory[place : place + 8], "little")
        return True

    def _set_registers(self, thread: int, _argument: int) -> bool:
        values = (c_uint64 * 17)(*self._registers, self._pc)
        library, place = self._library, c_void_p(thread)
        library.dwfl_thread_state_register_pc(place, c_uint64(self._pc))
        is_set = library.dwfl_thread_state_registers(place, c_int(0), c_uint(17), values)
        return bool(is_set & 0xFF)

    def _keep(self, frame: int, _argument: int) -> int:
        pc, is_exact = c_uint64(), c_bool()
        if not self._library.dwfl_frame_pc(
            c_void_p(frame), ctypes.byref(pc), ctypes.byref(is_exact)
        ):
            return _ABORT
        self._found.append((pc.value, is_exact.value))
        return _OK if len(self._found) < FRAMES_MOST else _ABORT

    def walk(
        self, registers: Sequence[int], pc: int, start: int, memory: bytes
    ) -> list[tuple[int, bool]]:
        """(address, whether it is not one behind a call) of each frame, innermost first.

        `registers` by DWARF number; `memory` is a copy of the stack from `start` on.
        """
        self._registers, self._pc, self._start, self._memory = registers, pc, start, memory
        self._found = []
        self._library.dwfl_getthread_frames(self._dwfl, c_int(self._pid), self._each, None)
        return self._found

    def close(self) -> None:
        """Free what libdw holds."""
        self._library.dwfl_end(self._dwfl)
