# SPDX-License-Identifier: GPL-2.0-only
"""Record a server for weeks into a data set that `tlstax fleet` asks.

    tlstax watch --name mariadbd --output /var/lib/tlstax
    tlstax watch --name mariadbd --output /var/lib/tlstax --listen 127.0.0.1:9917

    tlstax watch --name mysqld --all --output /var/lib/tlstax      several servers of this host
    tlstax watch --name mysqld --all --pod 2f1e8d3a --output /var/lib/tlstax      of those in a pod

The server may be started later, restarted and upgraded. Every rollup (a minute, or 10 s) writes the
sums of that time: the ledger, handshakes, wall times, losses, and what tlstax itself cost. They are
removed after --keep. Stop it with Ctrl-C or SIGTERM. docs/watch.md has more, and a systemd unit.
Exit status: 0; 2 wrong arguments; 3 a package, a feature or a privilege is missing; 4 the process
cannot be recorded, or the one of --pid has ended; 6 the folder cannot be written at the start.
"""

import argparse
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import complain, whole_number
from tlstax.collectors.capture.schema import Meta
from tlstax.collectors.commands.options import (
    NO_BUDGET,
    accept_option,
    budget,
    group_of,
    group_options,
    networks_option,
)
from tlstax.collectors.commands.stop_flag import StopFlag
from tlstax.collectors.process.control_groups import ID_LEAST, Group
from tlstax.collectors.process.target import no_program
from tlstax.collectors.watching.outlet import Outlet, Watched
from tlstax.collectors.watching.outlets import Outlets
from tlstax.collectors.watching.raw_captures import RawCaptures, remove_before
from tlstax.collectors.watching.sink import Sink
from tlstax.collectors.watching.watch import Watch
from tlstax.collectors.watching.watch_all import WatchAll

DEFAULT_BUDGET: Final = 0.005
WINDOW_S: Final = 10.0
"""Of the recorder; rollups are sums of these."""
DEFAULT_RAW: Final = 256 << 20
_LOOPBACK: Final = "127.0.0.1"
_DAY_S: Final = 86400
_UNITS_S: Final = {"h": 3600, "d": _DAY_S}
_EVERY_S: Final = {"10s": 10, "60s": 60, "1m": 60}
_SMALL: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Read by numpy's OpenBLAS and by pyarrow when they are imported; children inherit it. One thread,
not one for each CPU; and the C library's memory, as Arrow's own allocator keeps what was freed."""


class Sinks(Protocol):
    """Where the rows of all servers go."""

    def of(
        self, host: str, tell: Callable[[str], None], remove_raw: Callable[[str, int], bool]
    ) -> AbstractContextManager[Sink]:
        """Those of one server, which is a host of the data set.

        `remove_raw` removes the raw windows of a host that is not watched any more, if they began
        before this wall clock time, and says whether none is left.
        """

    def served(
        self, listen: tuple[str, int] | None, otlp: str, host: str, tell: Callable[[str], None]
    ) -> AbstractContextManager[object]:
        """Their metrics, as long as it is open."""


OpenSinks = Callable[..., Sinks]


def register(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", sinks: OpenSinks
) -> None:
    """Add `tlstax watch`."""
    parser = subparsers.add_parser(
        "watch",
        help="record a server for weeks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--name", default="", metavar="NAME", help="name of the server's process")
    who.add_argument("--pid", type=int, default=0, metavar="N", help="or one process, to its end")
    parser.add_argument(
        "--all",
        action="store_true",
        help="record all servers of that name, each as a host of its own in the data",
    )
    group_options(parser, "and")
    parser.add_argument(
        "-o", "--output", type=folder, required=True, metavar="DIR", help="folder of the data set"
    )
    parser.add_argument(
        "--every",
        type=every,
        default=60,
        metavar="TIME",
        help="length of a rollup: 10s or 60s (60s)",
    )
    parser.add_argument(
        "--keep", type=keep, default=14 * _DAY_S, metavar="TIME",
        help="remove rollups after this time, such as 48h or 30d (14d)",
    )  # fmt: skip
    parser.add_argument(
        "--raw", type=raw_bytes, default=DEFAULT_RAW, metavar="SIZE",
        help="keep the windows of the last hours as captures of so many bytes at most, such as "
        "500M, half of it for hours in which something happened; 0: do not (256M)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=budget, default=DEFAULT_BUDGET, metavar="SHARE",
        help="limit of the overhead, as a share of the server's CPU time, or of one CPU where it "
        "uses less: what costs more is recorded in windows; or none (0.5%%)",
    )  # fmt: skip
    parser.add_argument(
        "--listen", type=address, metavar="[HOST:]PORT",
        help=f"serve Prometheus metrics there ({_LOOPBACK} if only a port is given)",
    )  # fmt: skip
    parser.add_argument(
        "--otlp", type=otlp_address, metavar="URL",
        help="send OTLP metrics there, such as http://127.0.0.1:4318, as often as a rollup is "
        "written; headers and certificates by OTEL_EXPORTER_OTLP_... of the environment",
    )  # fmt: skip
    parser.add_argument(
        "--otlp-profiles", type=otlp_address, metavar="URL",
        help="send the largest stacks of each hour there as OTLP profiles, which OTLP still "
        "develops, when the hour is over",
    )  # fmt: skip
    networks_option(parser)
    parser.add_argument("--host", default="", metavar="NAME", help="name of the host in the data")
    parser.add_argument("--cluster", default="", metavar="NAME", help="cluster that it is of")
    accept_option(parser)
    parser.set_defaults(run=run, sinks=sinks)


def folder(text: str) -> Path:
    """A folder of this host: files of the running hour are replaced with each rollup."""
    if "://" in text:
        raise argparse.ArgumentTypeError(
            "it is no folder. A watch writes to a folder; `tlstax fleet add` puts captures into "
            "a bucket"
        )
    return Path(text)


def every(text: str) -> int:
    """Seconds of `10s` or `60s`."""
    if text not in _EVERY_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_EVERY_S)}")
    return _EVERY_S[text]


def keep(text: str) -> float:
    """Seconds of `48h` or `30d`: two hours to ten years."""
    number, unit = text[:-1], text[-1:]
    seconds = (whole_number(number) or 0) * _UNITS_S.get(unit, 0)
    if not 2 * 3600 <= seconds <= 3650 * _DAY_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 2h to 3650d")
    return seconds


def raw_bytes(text: str) -> int:
    """Bytes of `500M` or `2G`: 8 MB to 1 TB, or 0."""
    number, unit = text[:-1], text[-1:]
    shift = {"M": 20, "G": 30}.get(unit, 0)
    size = (whole_number(number) or 0) << shift if shift else 0
    if text != "0" and not 8 << 20 <= size <= 1 << 40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size from 8M to 1024G, or 0")
    return size


def address(text: str) -> tuple[str, int]:
    """Host and port of `9917`, `:9917`, `192.0.2.7:9917` or `[::1]:9917`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or _LOOPBACK
    number = whole_number(port)
    if number is None or number > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as 127.0.0.1:9917")
    return host, number


def otlp_address(text: str) -> str:
    """An http address without a password in it."""
    if "@" in text.partition("://")[2].partition("/")[0]:
        why = "an address has no password: set OTEL_EXPORTER_OTLP_HEADERS instead"
        raise argparse.ArgumentTypeError(why)
    try:
        parts = urlsplit(text)
        name = (parts.hostname or "").encode("idna")  # each part has 1 to 63 bytes
        is_usable = parts.scheme in ("http", "https") and bool(name) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not text.isprintable() or "?" in text or "#" in text:
        # Not repeated: a query may have a key.
        raise argparse.ArgumentTypeError("it is not an address such as http://HOST:4318")
    return text


def _require_program(pid: int) -> None:
    """Raise TlstaxError (TARGET) for a process that never was, that has ended, or of the kernel."""
    why = "there is no such process"
    if os.path.exists(f"/proc/{pid}"):
        try:
            os.readlink(f"/proc/{pid}/exe")
        except FileNotFoundError:
            why = no_program()
        except OSError:  # of another user: what is recorded of it is said later
            return
        else:
            return
    raise TlstaxError(
        f"process {pid} cannot be recorded",
        why,
        "List processes with ps -e, or give --name, which waits for a server",
        ExitCode.TARGET,
    )


def run(options: argparse.Namespace) -> int:
    """Record until SIGINT or SIGTERM."""
    if options.otlp_profiles and not options.raw:
        raise TlstaxError(
            "cannot send profiles",
            "stacks are found in raw windows, and --raw 0 keeps none",
            "Leave out --raw 0, or --otlp-profiles",
            ExitCode.USAGE,
        )
    _refuse_with_all(options)
    group = _group(options)
    if options.pid:
        _require_program(options.pid)
    for name, value in _SMALL.items():
        os.environ.setdefault(name, value)
    stop = StopFlag()
    share = None if options.budget == NO_BUDGET else options.budget
    watched = Watched(
        *(options.name, options.pid, share, WINDOW_S),
        accepted=options.accept,
        group=group,
        network_bits=options.client_networks,
    )
    options.host = options.host or os.uname().nodename
    sinks = options.sinks(
        *(options.output, options.cluster, options.every, options.keep),
        *(options.otlp_profiles or "", options.all),
    )
    # Metrics end before what they are of.
    served = (options.listen, options.otlp or "", options.host, _tell)
    if options.all:
        made = Outlets(lambda label: _outlet(options, sinks, label))
        with closing(made) as outlets, sinks.served(*served):
            WatchAll(watched, outlets, stop, _tell).run()
    else:
        with closing(_outlet(options, sinks, "")) as outlet, sinks.served(*served):
            Watch(watched, outlet, stop, _tell).run()
    if not stop.requested:
        raise TlstaxError(
            f"process {options.pid} has ended",
            "only this process was to be recorded",
            f"{options.output} has its rollups; --name follows a server's restarts",
            ExitCode.TARGET,
        )
    return int(ExitCode.OK)


def _refuse_with_all(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for what is for one server."""
    given = {
        "--pid": (options.pid, "it means all servers of a name"),
        "--otlp-profiles": (options.otlp_profiles, "profiles have no attribute for a server"),
    }
    for name, (is_given, why) in given.items():
        if options.all and is_given:
            raise TlstaxError(
                f"--all was given with {name}",
                why,
                f"Leave {name} out, or watch each server by its own tlstax with --pid and --host",
                ExitCode.USAGE,
            )


def _group(options: argparse.Namespace) -> Group:
    """What the server must belong to, besides its name. Raises TlstaxError (USAGE)."""
    group = group_of(options)
    if (options.pid and any(group)) or group.has_short_id:
        is_short = group.has_short_id
        raise TlstaxError(
            f"{group} is too short" if is_short else f"a pid and {group} were given",
            f"an id needs at least {ID_LEAST} digits" if is_short else "a pid says which it is",
            "Give more of it" if is_short else "Give --name instead of --pid",
            ExitCode.USAGE,
        )
    return group


def _outlet(options: argparse.Namespace, sinks: Sinks, label: str) -> Outlet:
    """Where the windows of a server go; one of several is a host of its own there.

    Raises TlstaxError; then nothing of it stays open.
    """
    host = f"{options.host}-{label}" if label else options.host

    def tell(text: str) -> None:
        _tell(f"{label}: {text}" if label else text)

    with ExitStack() as opened:
        folders = options.output / "raw"

        def remove_raw(former: str, end_wall_ns: int) -> bool:
            return remove_before(folders / raw_folder(former), end_wall_ns)

        sink = opened.enter_context(sinks.of(host, tell, remove_raw))
        raw = None
        if options.raw:
            folder = folders / raw_folder(host)
            names = {"watch_host": host, "watch_cluster": options.cluster}
            marks = [Meta(*one) for one in names.items()]
            raw = RawCaptures(folder, options.raw, tell, sink.recorded, marks)
            opened.callback(raw.close)
        return Outlet(sink, raw, tell, opened.pop_all().close)


def raw_folder(host: str) -> str:
    """The name of a host's folder of raw windows: no two hosts have the same one."""
    name = re.sub(r"[^\w.@-]", "_", host, flags=re.ASCII)
    if name == host and name.strip("."):
        return name
    return f"{name.strip('.')}-{hashlib.blake2b(host.encode(), digest_size=4).hexdigest()}"


def _tell(text: str) -> None:
    complain(text)  # in one line: a path of the server has whatever characters it likes
