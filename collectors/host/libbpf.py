# SPDX-License-Identifier: GPL-2.0-only
"""libbpf.so.1 through ctypes: the functions that are called, and the kernel's types (BTF)."""

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from tlstax import ExitCode, TlstaxError

PRINT_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
)
_BATCH_ARGUMENTS: Final = [ctypes.c_int, *[ctypes.c_void_p] * 6]
_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "libbpf_set_print": (ctypes.c_void_p, [PRINT_CALLBACK]),
    "bpf_object__open_file": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p]),
    "bpf_object__load": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_object__close": (None, [ctypes.c_void_p]),
    "bpf_object__find_map_by_name": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
    "bpf_object__find_program_by_name": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
    "bpf_object__next_map": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]),
    "bpf_map__name": (ctypes.c_char_p, [ctypes.c_void_p]),
    "bpf_map__fd": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_map__value_size": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bpf_map__max_entries": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bpf_map__set_max_entries": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32]),
    "bpf_map__reuse_fd": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "bpf_map__set_initial_value": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    "bpf_program__fd": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_program__set_autoload": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_bool]),
    "bpf_program__set_expected_attach_type": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "bpf_program__attach": (ctypes.c_void_p, [ctypes.c_void_p]),
    "bpf_program__attach_perf_event": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
    "bpf_program__attach_uprobe_opts": (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p],
    ),
    "bpf_program__attach_iter": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]),
    "bpf_link__fd": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_link__destroy": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_iter_create": (ctypes.c_int, [ctypes.c_int]),
    "ring_buffer__new": (
        ctypes.c_void_p,
        [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "ring_buffer__consume": (ctypes.c_int, [ctypes.c_void_p]),
    "ring_buffer__free": (None, [ctypes.c_void_p]),
    "libbpf_version_string": (ctypes.c_char_p, []),
    "btf__load_vmlinux_btf": (ctypes.c_void_p, []),
    "btf__find_by_name_kind": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32],
    ),
    "btf__type_by_id": (ctypes.POINTER(ctypes.c_uint32), [ctypes.c_void_p, ctypes.c_uint32]),
    "btf__free": (None, [ctypes.c_void_p]),
    "libbpf_find_vmlinux_btf_id": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_int]),
    "bpf_map_lookup_elem": (ctypes.c_int, [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "bpf_map_update_elem": (
        ctypes.c_int,
        [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64],
    ),
    "bpf_map_lookup_batch": (ctypes.c_int, _BATCH_ARGUMENTS),
    "bpf_map_lookup_and_delete_batch": (ctypes.c_int, _BATCH_ARGUMENTS),
    "bpf_obj_get_info_by_fd": (ctypes.c_int, [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "bpf_enable_stats": (ctypes.c_int, [ctypes.c_int]),
}


@cache
def open_library() -> ctypes.CDLL:
    """libbpf.so.1 with the signatures above. Raises OSError if it is not installed.

    Its messages to standard error are switched off: callers report failures themselves.
    """
    library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    library.libbpf_set_print(PRINT_CALLBACK())
    return library


def load_library() -> ctypes.CDLL:
    """As open_library(); raises TlstaxError HOST if it is not installed."""
    try:
        return open_library()
    except OSError as error:
        raise TlstaxError(
            "cannot load libbpf.so.1",
            str(error),
            "install libbpf 1.0 or later (Debian: apt-get install libbpf1)",
            ExitCode.HOST,
        ) from error


def tracepoint_argument_counts(*names: str) -> dict[str, int]:
    """Arguments that BTF tracepoints pass to a program, from the running kernel's own types.

    0 when the kernel has no BTF or no such tracepoint. Takes about 15 ms. Raises OSError where
    libbpf is not installed.
    """
    library = open_library()
    btf = library.btf__load_vmlinux_btf()
    if not btf:
        return dict.fromkeys(names, 0)
    try:
        return {name: _argument_count(library, btf, name) for name in names}
    finally:
        library.btf__free(btf)


def has_struct(name: str) -> bool:
    """Whether the kernel's types have this struct. Raises OSError where libbpf is not installed."""
    library = open_library()
    btf = library.btf__load_vmlinux_btf()
    if not btf:
        return False
    kind_struct = 4
    try:
        return bool(library.btf__find_by_name_kind(btf, name.encode(), kind_struct) > 0)
    finally:
        library.btf__free(btf)


def function_numbers(argument_counts: Mapping[str, int]) -> dict[str, int]:
    """Numbers of the kernel's functions in its types; without those of other argument counts.

    Empty when the kernel has no BTF. Raises OSError where libbpf is not installed.
    """
    library = open_library()
    btf = library.btf__load_vmlinux_btf()
    if not btf:
        return {}
    kind_func = 12
    found = {}
    try:
        for name, count in argument_counts.items():
            number = library.btf__find_by_name_kind(btf, name.encode(), kind_func)
            function = library.btf__type_by_id(btf, number) if number > 0 else None
            prototype = library.btf__type_by_id(btf, function[2]) if function else None
            if prototype and prototype[1] & 0xFFFF == count:
                found[name] = int(number)
    finally:
        library.btf__free(btf)
    return found


def _argument_count(library: ctypes.CDLL, btf: int, name: str) -> int:
    kind_typedef, kind_ptr, kind_func_proto = 8, 2, 13
    number = library.btf__find_by_name_kind(btf, f"btf_trace_{name}".encode(), kind_typedef)
    while number > 0:
        summary = library.btf__type_by_id(btf, number)
        if not summary:
            return 0
        kind = (summary[1] >> 24) & 0x1F
        if kind == kind_func_proto:
            return int(summary[1] & 0xFFFF) - 1  # the first one is the tracepoint's own data
        if kind not in (kind_typedef, kind_ptr):
            return 0
        number = summary[2]
    return 0
