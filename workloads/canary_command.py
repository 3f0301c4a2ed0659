# SPDX-License-Identifier: GPL-2.0-only
"""Measure what TLS adds to a connection of a server in production, under its present load.

It opens pairs of connections, one in plaintext and one with TLS, in random order, a few a second,
and prints the difference that this client sees, with its interval. Nothing is attached, and no root
is needed. The account needs no right but to connect; its password must be checked by the server
itself (a plug-in that needs the password in clear would send it in plaintext). The client's own TLS
work is in the difference: without ssl-ca in the option file it may load a whole CA bundle. It
refuses where plaintext is not allowed. Ctrl-C and SIGTERM end it early, with the pairs that there
are.
"""

import argparse
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.collectors.capture.printable import whole_number
from tlstax.workloads.canary import Access, Summary, measure, summarize

RATE_LEAST, RATE_MOST, RATE = 1.0, 5.0, 2.0
"""Connections a second."""
SECONDS_LEAST, SECONDS_MOST, SECONDS = 2.0, 86400.0, 60.0


def register(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    duration: Callable[[str], float],
) -> None:
    """Add `canary` to the command line. `duration`: reads seconds."""
    parser = subparsers.add_parser(
        "canary",
        help="measure what TLS adds to a connection",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", metavar="HOST[:PORT]", help="default: as the account says")
    account = parser.add_mutually_exclusive_group(required=True)
    account.add_argument("--login-path", metavar="NAME", help="of mysql_config_editor")
    account.add_argument(
        "--option-file", metavar="FILE", type=Path, help="with user and password, mode 0600"
    )
    parser.add_argument("--rate", metavar="N", type=float, default=RATE,
                        help="connections a second, 1 to 5 (default: 2)")  # fmt: skip
    parser.add_argument("--for", metavar="TIME", dest="seconds", type=duration, default=SECONDS,
                        help="such as 60s (the default), 10m or 1h")  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    _check(options)
    host, port = place_of(options.server)
    access = Access(options.option_file, options.login_path, host, port)
    with _ended_by_signals():
        found = measure(access, options.rate, options.seconds)
    print(text_of(summarize(found)))
    if found.failure:
        raise found.failure
    return ExitCode.OK


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does: with the pairs that there are."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check(options: argparse.Namespace) -> None:
    if not RATE_LEAST <= options.rate <= RATE_MOST:
        raise _usage("--rate", f"{options.rate:g} is not between 1 and 5 connections a second")
    if not SECONDS_LEAST <= options.seconds <= SECONDS_MOST:
        raise _usage("--for", f"{options.seconds:g} s is not between 2s and 24h")
    file = options.option_file
    if file is None:
        return
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise _usage("--option-file", f"{file}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise _usage("--option-file", f"{file} is no file")
    if mode & 0o077:
        raise TlstaxError(
            f"others may read {file}",
            "it holds a password",
            f"chmod 600 {file}",
            ExitCode.USAGE,
        )


def place_of(server: str | None) -> tuple[str | None, int | None]:
    """Host and port of `db1`, `db1:3307`, `::1` or `[::1]:3307`. TlstaxError (USAGE)."""
    if not server:
        return None, None
    host, colon, port = server, "", ""
    if server.count(":") == 1 or "]:" in server:  # else an IPv6 address, or no port
        host, colon, port = server.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = whole_number(port) or 0
    if colon and not 0 < number < 65536:
        raise _usage("--server", f"'{port}' is no port")
    if not host:
        raise _usage("--server", f"'{server}' has no host")
    return host, number or None


def _usage(option: str, why: str) -> TlstaxError:
    return TlstaxError(f"cannot use {option}", why, "See tlstax canary --help", ExitCode.USAGE)


def text_of(found: Summary) -> str:
    """What was measured, in lines."""
    return "\n".join(
        [
            _verdict(found),
            f"plaintext   {_ms(found.plaintext_ns)} (median)",
            f"TLS         {_ms(found.tls_ns)} (median)",
            "The client's own TLS work and the round trips are included.",
            (
                f"Cost: these connections were being opened in {found.busy_share:.2%} of the time, "
                "so the server spent at most about this share of one CPU on them."
            ),
        ]
    )


def _verdict(found: Summary) -> str:
    """The difference in a sentence, unless there are too few pairs to tell."""
    bounds = f"{_ms(found.low_ns)} to {_ms(found.high_ns)}"
    if not found.has_interval:
        return (
            f"Too few pairs ({found.count}, differences {bounds}): {LEAST_UNITS} are needed. "
            "Use a longer --for."
        )
    bounds += f", 95 % interval of {found.count} pairs"
    if found.low_ns <= 0 <= found.high_ns:
        return f"No difference seen ({bounds})."
    if found.difference_ns > 0:
        return (
            f"With TLS, a connection with one query takes {_ms(found.difference_ns)} longer "
            f"({bounds})."
        )
    return (
        f"With TLS, a connection with one query is {_ms(-found.difference_ns)} faster ({bounds}): "
        "look for what the plaintext client waits for."
    )


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.2f} ms"
