# SPDX-License-Identifier: GPL-2.0-only
"""Machine code that throws through a function, as C++ does: `outer` calls `thrower`, which throws.

No compiler and no C++ library is needed: `_Unwind_RaiseException` of libgcc_s is what `throw`
calls, and the unwind information (DWARF, .eh_frame) of both functions is made here. `outer` has a
personality routine that catches everything. If the unwinder finds no handler, `thrower` calls
abort(), as the C++ runtime does.
"""

import ctypes
import struct
from typing import Final

CAUGHT: Final = 42
THROWER_OFFSET: Final = 256
_PERSONALITY_OFFSET: Final = 128
_ABSOLUTE: Final = b"\x00"  # DW_EH_PE_absptr
_CFA_AT_ENTRY: Final = b"\x0c\x07\x08"  # DW_CFA_def_cfa rsp, 8
_RETURN_ADDRESS: Final = b"\x90\x01"  # DW_CFA_offset rip, 1 (times the data alignment, -8)
_PUSHED: Final = b"\x45\x0e\x10"  # 5 bytes further: DW_CFA_def_cfa_offset 16


class Unwinder:
    """Functions of libgcc_s. Raises OSError when it is not installed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libgcc_s.so.1")

    def address(self, name: str) -> int:
        """Where a function is."""
        return ctypes.cast(self.library[name], ctypes.c_void_p).value or 0

    def register(self, frames: "ctypes.Array[ctypes.c_char]") -> None:
        """Make unwind information known; it must stay in memory as long as its code is used."""
        function = self.library["__register_frame"]
        function.restype = None
        function.argtypes = [ctypes.c_void_p]
        function(ctypes.addressof(frames))


class ThrowingCode:
    """The code of both functions; `outer` is at offset 0."""

    def __init__(self) -> None:
        self.unwinder = Unwinder()
        self._exception = ctypes.create_string_buffer(64)
        self._frames: ctypes.Array[ctypes.c_char] | None = None
        exception = -(-ctypes.addressof(self._exception) // 16) * 16
        abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value or 0
        self.code = (
            self._outer().ljust(_PERSONALITY_OFFSET, b"\xcc")
            + self._personality().ljust(THROWER_OFFSET - _PERSONALITY_OFFSET, b"\xcc")
            + b"\x90\x48\x83\xec\x08"  # nop; sub $8,%rsp
            + b"\x48\xbf" + struct.pack("<Q", exception)  # movabs $exception,%rdi
            + _call(self.unwinder.address("_Unwind_RaiseException"))
            + _call(abort)
            + b"\x0f\x0b"  # ud2
        )  # fmt: skip

    def register(self, address: int) -> None:
        """Make the unwind information known for the code, which is mapped at `address`."""
        personality = address + _PERSONALITY_OFFSET
        catching = b"\x00" + struct.pack("<Q", personality) + _ABSOLUTE
        frames = b"".join(
            (
                *_entry(b"zPR\0", catching, address, _PERSONALITY_OFFSET),
                *_entry(b"zR\0", _ABSOLUTE, address + THROWER_OFFSET, 64),
            )
        )
        self._frames = ctypes.create_string_buffer(frames + bytes(4))
        self.unwinder.register(self._frames)

    @staticmethod
    def _outer() -> bytes:
        """Calls `thrower`; returns CAUGHT if an exception was caught, else 1."""
        head = b"\x90\x48\x83\xec\x08"  # nop; sub $8,%rsp
        behind_call = len(head) + 5
        head += b"\xe8" + struct.pack("<i", THROWER_OFFSET - behind_call)
        return (
            head
            + b"\x48\x83\xc4\x08\xb8\x01\x00\x00\x00\xc3"  # add $8,%rsp; mov $1,%eax; ret
            + b"\x48\x83\xc4\x08\xb8" + struct.pack("<I", CAUGHT) + b"\xc3"
        )  # fmt: skip

    def _personality(self) -> bytes:
        """Handler found in phase 1; in phase 2 of the handler's frame continue at the landing."""
        landing = 5 + 5 + 10
        code = b"\x40\xf6\xc6\x01\x74\x06"  # test $_UA_SEARCH_PHASE,%sil; je +6
        code += b"\xb8\x06\x00\x00\x00\xc3"  # mov $_URC_HANDLER_FOUND,%eax; ret
        code += b"\x40\xf6\xc6\x04\x75\x06"  # test $_UA_HANDLER_FRAME,%sil; jne +6
        code += b"\xb8\x08\x00\x00\x00\xc3"  # mov $_URC_CONTINUE_UNWIND,%eax; ret
        code += b"\x48\x83\xec\x08\x4c\x89\xc7"  # sub $8,%rsp; mov %r8,%rdi (the context)
        behind_lea = _PERSONALITY_OFFSET + len(code) + 7
        code += b"\x48\x8d\x35" + struct.pack("<i", landing - behind_lea)  # lea landing(%rip),%rsi
        code += _call(self.unwinder.address("_Unwind_SetIP"))
        # add $8,%rsp; mov $_URC_INSTALL_CONTEXT,%eax; ret
        return code + b"\x48\x83\xc4\x08\xb8\x07\x00\x00\x00\xc3"


def _call(address: int) -> bytes:
    """Code that calls an address: movabs $address,%rax; call *%rax."""
    return b"\x48\xb8" + struct.pack("<Q", address) + b"\xff\xd0"


def _entry(augmentation: bytes, values: bytes, start: int, length: int) -> tuple[bytes, bytes]:
    """The common part (CIE) and the function's own part (FDE) of its unwind information."""
    common = b"\x01" + augmentation + b"\x01\x78\x10" + bytes([len(values)]) + values
    common = _sized(struct.pack("<I", 0) + common + _CFA_AT_ENTRY + _RETURN_ADDRESS)
    pointer = struct.pack("<I", len(common) + 4)
    own = pointer + struct.pack("<QQ", start, length) + b"\x00" + _PUSHED
    return common, _sized(own)


def _sized(content: bytes) -> bytes:
    """With its length before it, padded by DW_CFA_nop to a multiple of 8."""
    padded = content + bytes(-(len(content) + 4) % 8)
    return struct.pack("<I", len(padded)) + padded
