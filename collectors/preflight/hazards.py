# SPDX-License-Identifier: GPL-2.0-only
"""The list of hazards: hazards.toml, parsed and checked.

Keys of a hazard: `id` (never reused), `title`, `what` (one sentence without its full stop), `hurts`
(what is hurt: the kernel, the target, or only the recording), `kind` (how it is found), `check`
(the trial or reading of that name), `kernels` (ranges [first, first that is not affected]; absent:
every kernel), `confirmed` (whether the ranges were compared with the fix in each stable series;
otherwise they are as reported), `condition` (what else must hold), `symbol` (a kernel function
without which the kernel is not affected), `verified` (releases of distributions, as `uname -r`
prints them, whose source was read), `variant` (what a recording does instead), `exit_code` (of a
refusal) and `source`.

What can hurt the kernel is never tried: such a hazard has the kind `table`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode
from tlstax.probes.toml_table import Table, refuse

VARIANTS: Final[Mapping[str, str]] = {
    "leaf-return-probes": "return probes only on leaf functions of the TLS library",
    "no-return-probes": "no return probes",
    "no-nop5-probes": "no probe on a 5-byte nop",
    "no-stepped-probes": "no probe on an instruction that is single-stepped",
    "guarded-programs": "uprobe programs that cannot be preempted",
    "no-user-stacks": "no user stacks",
    "no-samples": "no CPU samples",
    "sample-only": "CPU samples only",
    "single-probes": "one perf event for each probe",
    "warn": "a note in the capture",
    "refuse": "no recording",
}
KINDS: Final = ("trial", "table", "host", "target")
HURTS: Final = ("kernel", "target", "recording")
CONDITIONS: Final = ("", "seccomp", "shadow_stack", "overlay", "preemption", "many_cpus")
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

Version = tuple[int, ...]


@dataclass(frozen=True)
class Hazard:
    """One known hazard; the keys are explained in the module's documentation."""

    id: str
    title: str
    what: str
    hurts: str
    kind: str
    check: str
    kernels: tuple[tuple[Version, Version], ...]
    confirmed: bool
    condition: str
    symbol: str
    verified: tuple[str, ...]
    variant: str
    exit_code: ExitCode
    source: tuple[str, ...]

    def affects(self, version: Version) -> bool:
        """Whether a kernel of this version lies in one of the ranges; an open range has no end."""
        return any(first <= version and (not end or version < end) for first, end in self.kernels)

    def ranges(self) -> str:
        """The ranges as text, for example `6.16 to before 6.17.8`."""
        return ", ".join(_range(first, end) for first, end in self.kernels) or "every kernel"


def load_hazards() -> tuple[Hazard, ...]:
    """The bundled list. Raises TlstaxError (USAGE) if it is not valid."""
    file = Path(__file__).with_name("hazards.toml")
    return parse_hazards(file.read_bytes(), file.name)


def parse_hazards(content: bytes, source: str) -> tuple[Hazard, ...]:
    """Check the content of a list; `source` is only for the error message."""
    import tomllib

    try:
        table = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise refuse(source, f"it is not TOML ({error})") from None
    top = Table(table, source)
    retired = table.get("retired")
    if not isinstance(retired, list):
        raise refuse(source, "'retired' must be a list of ids")
    top.content.pop("retired")
    hazards = tuple(_hazard(entry) for entry in top.tables("hazard"))
    top.finish()
    seen = set(retired)
    for hazard in hazards:
        if hazard.id in seen:
            raise refuse(f"{source}, hazard {hazard.id}", "its id was used before")
        seen.add(hazard.id)
    return hazards


def _hazard(table: Table) -> Hazard:
    name = table.text("id")
    if not _ID.fullmatch(name):
        raise table.refuse(f"{name!r} is no id: small letters, digits and single hyphens")
    kind = table.choice("kind", KINDS)
    variant = table.choice("variant", tuple(VARIANTS))
    exit_name = table.choice("exit_code", ("HOST", "TARGET"), "OK")
    hazard = Hazard(
        id=name,
        title=table.text("title"),
        what=table.text("what"),
        hurts=table.choice("hurts", HURTS),
        kind=kind,
        check=table.text("check") if kind != "table" else "",
        kernels=_ranges(table),
        confirmed=table.flag("confirmed"),
        condition=table.choice("condition", CONDITIONS, ""),
        symbol=table.text("symbol") if "symbol" in table else "",
        verified=table.texts("verified") if "verified" in table else (),
        variant=variant,
        exit_code=ExitCode[exit_name],
        source=table.texts("source"),
    )
    table.finish()
    if hazard.hurts == "kernel" and kind != "table":
        raise table.refuse("what can hurt the kernel must not be tried: its kind is 'table'")
    if kind == "table" and not hazard.kernels:
        raise table.refuse("'kernels' is missing")
    if (variant == "refuse") != (hazard.exit_code != ExitCode.OK):
        raise table.refuse("'exit_code' belongs to the variant 'refuse', and only to it")
    return hazard


def _ranges(table: Table) -> tuple[tuple[Version, Version], ...]:
    if "kernels" not in table:
        return ()
    ranges = []
    for entry in table.items("kernels"):
        if not isinstance(entry, list) or len(entry) != 2:
            raise table.refuse("'kernels' must be a list of pairs")
        first, end = (_version(table, part) for part in entry)
        if not first or (end and end <= first):
            raise table.refuse(f"{entry} is no range of kernels")
        ranges.append((first, end))
    return tuple(ranges)


def _version(table: Table, text: object) -> Version:
    """A version as numbers; an empty text is no version."""
    if text == "":
        return ()
    if not isinstance(text, str) or not re.fullmatch(r"\d+(\.\d+)*", text):
        raise table.refuse(f"{text!r} is no version of a kernel")
    return tuple(int(part) for part in text.split("."))


def _range(first: Version, end: Version) -> str:
    start = ".".join(map(str, first))
    before = ".".join(map(str, end))
    if not end:
        return f"{start} and later"
    return f"before {before}" if first == (0,) else f"{start} to before {before}"
