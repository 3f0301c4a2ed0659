# SPDX-License-Identifier: GPL-2.0-only
"""Arguments that several commands take."""

import argparse
from collections.abc import Callable

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.process.control_groups import ID_LEAST, UID_LEAST, Group
from tlstax.collectors.process.find_process import find_in_group
from tlstax.probes.primitives import parse_names

DEFAULT_BUDGET = 0.05
"""The default budget, as a share of the server's CPU time. On a busy server dense windows then
record thousands of commands per second; if everything fits, everything is on all the time."""
NO_BUDGET = float("inf")
DEFAULT_BITS6 = 48
"""Of an IPv6 address: what a site usually has of its own."""
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "ms": 0.001}


def duration(text: str) -> float:
    """Seconds of `30s`, `5m`, `1h`, `100ms` or a bare number of seconds."""
    number = text.rstrip("smh")
    unit = text[len(number) :] or "s"
    try:
        seconds = float(number) * _UNITS_S[unit]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s or 5m") from None
    if not 0.01 <= seconds <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 10ms and a week")
    return seconds


def functions_option(text: str) -> tuple[str, ...]:
    """Names of categories or primitives, separated by commas."""
    try:
        return parse_names(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def target_options(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    """Add PID, --name, --unit, --container and --pod: `target_pid` finds the process.

    `many`: there may be several PID, as `pids`, and --all for all that the others find.
    """
    who = parser.add_mutually_exclusive_group()
    if many:
        who.add_argument(
            "pids", nargs="*", type=int, default=[], metavar="PID", help="process id of the server"
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="record all processes of that name, unit, container or pod, not the only one",
        )
    else:
        who.add_argument("pid", nargs="?", type=int, metavar="PID", help="process id of the server")
    who.add_argument("--name", metavar="NAME", help="or its name, when only one process has it")
    group_options(parser, "or")


def group_options(parser: argparse.ArgumentParser, word: str) -> None:
    """Add --unit, --container and --pod. `word` is `or`, or `and`: with --name they narrow it."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--unit", metavar="UNIT", help=f"{word} the systemd unit that it runs in, such as mariadb"
    )
    where.add_argument(
        "--container",
        metavar="ID",
        help=f"{word} the id of its container, or its first {ID_LEAST} or more digits (LXC, "
        "nspawn: the name)",
    )
    where.add_argument(
        "--pod",
        metavar="UID",
        help=f"{word} the uid of its pod, or its first {UID_LEAST} or more digits; with --name, if "
        "it has more processes",
    )


def target_group(options: argparse.Namespace) -> Group:
    """The unit, container or pod of `target_options`. Raises TlstaxError (USAGE)."""
    group = group_of(options)
    if options.pid is None and not options.name and not any(group):
        raise TlstaxError(
            "no process was given",
            "there is neither a pid nor anything to find it by",
            "Give PID, --name, --unit, --container or --pod",
            ExitCode.USAGE,
        )
    if options.pid is not None and any(group):
        raise TlstaxError(
            f"a pid and {group} were given",
            "a pid says which process it is",
            "Give one of them",
            ExitCode.USAGE,
        )
    return group


def group_of(options: argparse.Namespace) -> Group:
    """That of `group_options`. Raises TlstaxError (USAGE)."""
    group = Group(options.unit or "", options.container or "", options.pod or "")
    if group.has_short_uid:
        raise TlstaxError(
            f"pod {group.pod} is too short",
            f"a uid needs at least {UID_LEAST} digits",
            f"Give the pod's uid, or its first {UID_LEAST} or more digits",
            ExitCode.USAGE,
        )
    return group


def target_pid(options: argparse.Namespace) -> int:
    """The process that `target_options` name, on this host. Raises TlstaxError."""
    group = target_group(options)
    if options.pid is not None:
        return int(options.pid)
    return find_in_group(group, options.name or "", may_be_all=hasattr(options, "all"))


def accept_option(parser: argparse.ArgumentParser) -> None:
    """Add --accept."""
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="HAZARD",
        help="do not apply the safe variant or the refusal of this hazard, by its name in "
        "`tlstax doctor PID`: the server or the host may be hurt (repeatable)",
    )


def networks_option(parser: argparse.ArgumentParser) -> None:
    """Add --client-networks."""
    parser.add_argument(
        "--client-networks",
        type=networks,
        metavar="BITS[,BITS6]",
        help="also record from which network each handshake came: so many bits of an IPv4 address "
        f"and of an IPv6 one ({DEFAULT_BITS6}), such as 24,48; even these may be personal data (no "
        "address is recorded)",
    )


def networks(text: str) -> tuple[int, int]:
    """Bits of IPv4 and IPv6 addresses of `24` or `24,48`."""
    bits, comma, bits6 = text.partition(",")
    bits6 = bits6 if comma else str(DEFAULT_BITS6)
    bits_count, bits6_count = whole_number(bits) or 0, whole_number(bits6) or 0
    if not (1 <= bits_count <= 32 and 1 <= bits6_count <= 128):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not 1 to 32 bits of an IPv4 address, or these and 1 to 128 of an IPv6 "
            "one, such as 24,48"
        )
    return bits_count, bits6_count


def budget(text: str) -> float:
    """A share of the server's CPU time from `0.1%` to `50%`, or NO_BUDGET for `none`."""
    if text == "none":
        return NO_BUDGET
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / 100 if text.endswith("%") else float("nan")
    except ValueError:
        share = float("nan")
    if not 0.000999 <= share <= 0.5:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a share from 0.1% to 50% nor none")
    return share


def share_of(given: float | None, *, is_expensive: object) -> float | None:
    """The share of a given budget, or of the default; None: there is no limit.

    `is_expensive`: what else was asked for costs more than the default budget allows.
    """
    if given is None:
        return None if is_expensive else DEFAULT_BUDGET
    return None if given == NO_BUDGET else given


def remote_options(parser: argparse.ArgumentParser) -> None:
    """Add --ssh, --sudo, --remote-dir and --remote-recorder."""
    from tlstax.collectors.remote.destination import directory_name, host_name

    group = parser.add_argument_group("on another host")
    group.add_argument(
        "--ssh",
        type=_checked(host_name),
        metavar="[USER@]HOST",
        help="the process runs there: its files are read and it is recorded over your own ssh; "
        "nothing is installed or left there",
    )
    group.add_argument(
        "--sudo", action="store_true", help="run the recorder there by sudo -n (docs/agentless.md)"
    )
    group.add_argument(
        "--remote-dir",
        type=_checked(directory_name),
        metavar="DIR",
        help="copy the recorder there instead of to memory-backed storage",
    )
    group.add_argument(
        "--remote-recorder",
        type=_checked(directory_name),
        metavar="FILE",
        help="run this one, which is installed there, and copy none (docs/agentless.md)",
    )


def _checked(parse: Callable[[str], str]) -> Callable[[str], str]:
    def checked(text: str) -> str:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def require_ssh(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for an option that means nothing without --ssh."""
    if not options.ssh and (options.sudo or options.remote_dir or options.remote_recorder):
        raise TlstaxError(
            "--sudo, --remote-dir or --remote-recorder was given without --ssh",
            "they are about another host",
            "Give --ssh HOST, too",
            ExitCode.USAGE,
        )
    if options.remote_dir and options.remote_recorder:
        raise TlstaxError(
            "--remote-dir was given with --remote-recorder",
            "a recorder that is installed there is not copied anywhere",
            "Give one of them",
            ExitCode.USAGE,
        )
