# SPDX-License-Identifier: GPL-2.0-only
"""The system call that a sample or wait was in, by the functions in its stack.

perf, bpftrace and bcc's tools record stacks and no number. The kernel's own function of the call
tells it where it is in the stack; else the user function that called the kernel does, as libc has
a wrapper of the same name for each call.
"""

import re
from collections.abc import Sequence
from typing import Final

from tlstax.collectors.capture.syscalls import NUMBERS

_ENTRY: Final = re.compile(r"entry_SYSCALL|el0t?_64_sync|do_syscall_64")
_CALL: Final = re.compile(r"(?:__x64_|__arm64_|__do_|__se_|do_|k|__)sys_(\w+)")
_WRAPPER: Final = re.compile(r"(?:__GI_)?(?:__)?(?:libc_)?(\w+?)(?:_nocancel)?(?:@.*)?")


def syscall_of(kernel: Sequence[str], caller: str = "") -> int:
    """The number of the system call that a kernel stack (leaf first) is in; -1 for none.

    `caller` is the innermost user function.
    """
    if not kernel or not _ENTRY.match(kernel[-1]):
        return -1
    names = [found[1] for name in kernel if (found := _CALL.fullmatch(name))]
    if wrapper := _WRAPPER.fullmatch(caller):
        names.append(wrapper[1])
    return next((NUMBERS[name] for name in names if name in NUMBERS), -1)
