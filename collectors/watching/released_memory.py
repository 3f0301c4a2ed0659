# SPDX-License-Identifier: GPL-2.0-only
"""Gives back the memory of a recording that has ended, before the next one needs as much.

Parts of it refer to each other, the sites of its plan among them. Python finds such circles only by
a full collection, which it makes when objects have become many more: in a watch, hardly ever. So
each restart of the server left 0.2 to 0.4 MB. The C library, too, keeps what was freed.
"""

import ctypes
import gc


def release() -> None:
    """Free what nobody refers to any more; glibc also returns its free pages to the kernel."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
