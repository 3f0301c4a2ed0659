# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs on another host, measured there by its recorder, or kept from before."""

from pathlib import Path

from tlstax.collectors.host.probe_costs.costs import (
    UnmeasuredError,
    costs_in,
    load,
    path_of,
    save,
)
from tlstax.collectors.host.probe_costs.prices import HostCosts, unmeasured_note
from tlstax.collectors.process.usable_cpus import cpus_in
from tlstax.collectors.remote.connection import Tell
from tlstax.collectors.remote.image import Image

_FACTS = ("proc/sys/kernel/hostname", "proc/sys/kernel/osrelease", "proc/sys/kernel/version")
_ONLINE = "sys/devices/system/cpu/online"


def costs_there(image: Image, refused: str, tell: Tell) -> HostCosts:
    """The costs of the image's host: those of the last week, or measured now.

    `refused`: why no probe may be tried there, "" if it may. Where nothing is measured, the default
    costs, and the user is told.
    """
    whose = _identity(image)
    kept = load(path_of(whose), whose)
    if kept is not None:
        return kept
    why = refused
    if not why:
        try:
            costs = costs_in(image.prices_text(), ())
        except UnmeasuredError as error:
            why = str(error)
        else:
            save(path_of(whose), whose, costs, _cpus_count(image))
            return costs
    tell(unmeasured_note(image.host_name, why))
    return HostCosts()


def _cpus_count(image: Image) -> int:
    return max(1, len(cpus_in(_text(image.proc.parent / _ONLINE))))


def _identity(image: Image) -> str:
    """What the costs depend on: the host, its kernel, its CPUs."""
    root = image.proc.parent
    return "\n".join([image.host_name, *(_text(root / name) for name in (*_FACTS, _ONLINE))])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # it was not sent
        return ""
