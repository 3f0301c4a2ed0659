# SPDX-License-Identifier: GPL-2.0-only
"""Write out the static recorder: one file that records on a host without tlstax and Python.

    tlstax recorder --output tlstax-recorder
    tlstax probes plan PID --output server.plan        on a host with the same server and kernel
    ./tlstax-recorder --plan server.plan --pid PID --for 30s > x.stream
    tlstax import x.stream -o server.tlstax

The file needs no library and no other file. Copy it where the server runs; it must run as root.
Its SHA-256 is printed, for a line of sudoers. In a source checkout, a warning tells if the file is
older than its sources: `make recorder` builds that of this host, `make recorder ARCH=aarch64` the
other one.
"""

import argparse
import errno
import hashlib
import os
import sys
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.files import is_stream, put_whole
from tlstax.collectors.capture.printable import warn
from tlstax.collectors.host.executable import MACHINES, age_warning, machine_of, recorder_path


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax recorder`."""
    parser = subparsers.add_parser(
        "recorder",
        help="write out the static recorder",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="executable to write"
    )
    parser.add_argument(
        "--arch",
        choices=MACHINES,
        default="",
        help="machine that it is for, as `uname -m` says there (this host's)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Copy the executable."""
    source = recorder_path(options.arch)
    try:
        content = source.read_bytes()
        _write(options.output, content, options.force)
    except FileExistsError:
        raise _unwritable(
            options.output,
            "the file exists",
            "choose another name, or give --force",
            ExitCode.USAGE,
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _unwritable(
            options.output, reason, "choose another directory", ExitCode.IO
        ) from error
    if warning := age_warning(source, str(options.output)):
        warn(f"{warning} with --force")
    print(
        f"{options.output}: {len(content)} bytes, for {machine_of(source)}, "
        f"sha256:{hashlib.sha256(content).hexdigest()}",
        file=sys.stderr,
    )
    return int(ExitCode.OK)


def _write(path: Path, content: bytes, force: bool) -> None:
    """Put it there whole, or leave what is there as it was."""
    if os.path.lexists(path):
        if not force:
            raise FileExistsError(path)
        if is_stream(path) or not (path.is_file() or path.is_symlink()):
            raise OSError(errno.EINVAL, "it is there and is no file")
    put_whole(path, content, 0o755)


def _unwritable(path: Path, why: str, do: str, code: ExitCode) -> TlstaxError:
    return TlstaxError(f"cannot write {path}", why, do, code)
