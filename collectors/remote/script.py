# SPDX-License-Identifier: GPL-2.0-only
"""What the shell of the other host does: take the recorder from its input, and run it.

The recorder is received into a file without a name, so that nothing is left if the line is cut
meanwhile. It has a name for the moment in which sudo needs one: started with --remove-self it
deletes itself first, and the shell's trap does so if it was not started. One that is installed
there is run as it is.
"""

import re
from typing import Final

from tlstax.collectors.remote.destination import Destination

NAME: Final = "tlstax-recorder"
_SCRIPT: Final = """\
umask 077; fail() {{ echo "tlstax: $1" >&2; exit 3; }}; \
[ "$(uname -m)" = {machine} ] || fail "this host is $(uname -m), the recorder is for {machine}"; \
for d in {directories}; do {is_fit} && f=$(mktemp "$d/tlstax-XXXXXXXXXX" 2>/dev/null) && break; \
done; [ -n "$f" ] || fail "{nowhere}"; \
exec 3<>"$f"; rm -f "$f"; head -c {size} >&3 || \
fail "no room for {size} bytes in $d: give --remote-dir"; \
[ "$(wc -c </proc/self/fd/3)" -eq {size} ] || fail "the line was cut"; \
t=$(mktemp -d "$d/tlstax-XXXXXXXXXX") || fail "no directory can be made in $d"; \
trap "rm -rf $t" EXIT; trap "exit 3" HUP INT TERM PIPE; \
cat </proc/self/fd/3 >"$t/{name}" && chmod 500 "$t/{name}" && exec 3>&-; \
{as_root}"$t/{name}" --serve --remove-self; exit $?"""
_INSTALLED: Final = """\
fail() {{ echo "tlstax: $1" >&2; exit 3; }}; \
[ -x {recorder} ] || fail "no {recorder} there that can be executed: write it by tlstax recorder"; \
exec {recorder} --serve"""
_MEMORY: Final = "/dev/shm /run/user/$(id -u)"
OTHER_MACHINE: Final = re.compile(r"this host is (\w+), the recorder is for \w+")
_IS_MEMORY: Final = """grep -q "^[^ ]* $d \\(tmpfs\\|ramfs\\) " /proc/mounts"""
_IS_EXECUTABLE: Final = """! grep -q "^[^ ]* $d [^ ]* [^ ]*noexec" /proc/mounts"""


def script(destination: Destination, size_bytes: int, machine: str = "x86_64") -> str:
    """The script, which holds no single quote."""
    if destination.recorder and destination.sudo:  # only root may be able to see it
        return f"exec sudo -n {destination.recorder} --serve"
    if destination.recorder:
        return _INSTALLED.format(recorder=destination.recorder)
    directory = destination.directory
    nowhere = (
        f"{directory} cannot be written"
        if directory
        else "neither /dev/shm nor /run/user is in memory, can be written and allows execution: "
        "give --remote-dir"
    )
    return _SCRIPT.format(
        directories=directory or _MEMORY,
        is_fit=f"[ -d {directory} ]" if directory else f"{_IS_MEMORY} && {_IS_EXECUTABLE}",
        nowhere=nowhere,
        size=size_bytes,
        machine=machine,
        name=NAME,
        as_root="sudo -n " if destination.sudo else "",
    )
