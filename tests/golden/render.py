# SPDX-License-Identifier: GPL-2.0-only
"""Golden files: what is made from each `*.in`.

Re-record with `python tests/golden/render.py --record`, and read the difference before committing.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.stacks import Folded, fold_off_cpu, fold_on_cpu
from tlstax.analysis.classify.taxonomy import Sample, builtin
from tlstax.collectors.capture.schema import Frame, OffcpuStack, SampleStack, Stack
from tlstax.collectors.capture.syscalls import syscall_name
from tlstax.tests.golden.capture import synthetic

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
FRAME: Final = re.compile(r"(?P<object>.*?)!(?P<symbol>.*?)(?:\{(?P<code>[^{}]*)\})?$")
SYSCALLS: Final = {syscall_name(number): number for number in range(-1, 1000)}


def content(text: str) -> Iterator[str]:
    """Lines without comments and empty ones."""
    return (line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def parse_frames(text: str, kernel: bool) -> tuple[Frame, ...]:
    """Frames, leaf first, from frames written root first."""
    frames = []
    for item in text.strip().split(";") if text.strip() else []:
        found = FRAME.match(f"kernel!{item}" if kernel else item)
        assert found, item
        frames.append(Frame(0, found["object"], "", 0, found["symbol"], 0, "", found["code"] or ""))
    return tuple(reversed(frames))


def parse_sample(text: str) -> Sample:
    """`phase system-call | user | kernel`."""
    head, user, kernel = (part.strip() for part in f"{text} ".split("|"))
    phase, call = head.split()
    number = SYSCALLS[call] if call in SYSCALLS else int(call)
    return Sample(phase, number, parse_frames(user, False), parse_frames(kernel, True))


def taxonomy(text: str) -> str:
    """Category and rules of each sample."""
    lines = []
    for line in content(text):
        sample = parse_sample(line)
        rules = ",".join(rule.id for rule in builtin().hits(sample)) or "-"
        lines.append(f"{builtin().category(sample)} {rules} | {line.rstrip()}\n")
    return "".join(lines)


def folding(text: str) -> str:
    """Folded stacks of a small capture, each frame with its category."""
    totals: dict[tuple[str, str], int] = {}
    samples: list[SampleStack] = []
    waits: list[OffcpuStack] = []
    frames: list[Frame] = []
    stacks: list[Stack] = []

    def store(parts: tuple[Frame, ...]) -> int | None:
        first = len(frames) + 1
        frames.extend(frame._replace(frame_id=first + n) for n, frame in enumerate(parts))
        stacks.append(Stack(len(stacks) + 1, " ".join(str(first + n) for n in range(len(parts)))))
        return stacks[-1].stack_id if parts else None

    for line in content(text):
        head, _, rest = line.partition("|")
        kind, *values = head.split()
        if kind == "ledger":
            totals[values[0], values[1]] = int(values[2])
            continue
        sample = parse_sample(rest)
        ids = store(sample.user), store(sample.kernel)
        if kind == "sample":
            samples.append(SampleStack(1, sample.phase, sample.syscall, *ids, int(values[0])))
        else:
            waits.append(
                OffcpuStack(
                    1, sample.phase, values[2], sample.syscall, *ids, int(values[0]), int(values[1])
                )
            )
    resolved = Stacks(frames, stacks)
    on_cpu, sample_count = fold_on_cpu(samples, {1}, totals, resolved, builtin())
    off_cpu, wait_count = fold_off_cpu(waits, {1}, totals, resolved, builtin())
    return (
        f"on_cpu {sample_count} samples\n{_folded(on_cpu)}"
        f"off_cpu {wait_count} waits\n{_folded(off_cpu)}"
    )


def _folded(folded: Folded) -> str:
    lines = (
        ";".join(f"{frame.name}[{frame.category}]" for frame in path) + f" {time_ns:.0f}\n"
        for path, time_ns in folded.items()
    )
    return "".join(sorted(lines))


def report(text: str) -> str:
    """What commands print that is no terminal, without the blanks at the ends of lines.

    A line `synthetic FILE` builds a capture of a recording without runs. Any other is a command of
    tlstax, beside demo.tlstax, the capture of docs/demo.
    """
    printed = []
    environment = {"PATH": os.environ["PATH"], "PYTHONUTF8": "1"}  # nothing that styles or widens
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "demo.tlstax").symlink_to(ROOT / "docs/demo/demo.tlstax")
        for line in content(text):
            command, *arguments = line.split()
            if command == "synthetic":
                synthetic.build(str(Path(folder) / arguments[0]), attach=True)
                continue
            done = subprocess.run(
                [sys.executable, "-m", "tlstax", command, *arguments],
                cwd=folder, env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
            printed += done.stdout.splitlines()
    return "".join(f"{line.rstrip()}\n" for line in printed)


RENDERERS: Final[dict[str, Callable[[str], str]]] = {
    "taxonomy": taxonomy,
    "folding": folding,
    "report": report,
}


def pairs() -> list[tuple[str, Path, Path]]:
    """Every input with its renderer and its output."""
    return [
        (stem, path, path.with_suffix(".out"))
        for stem in RENDERERS
        for path in sorted((HERE / stem).glob("*.in"))
    ]


def main() -> None:
    """Print what changed; with --record write it."""
    parser = argparse.ArgumentParser(description="compare or re-record golden files")
    parser.add_argument("--record", action="store_true")
    record = parser.parse_args().record
    for stem, source, target in pairs():
        text = RENDERERS[stem](source.read_text(encoding="utf-8"))
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            print(f"{'recorded' if record else 'differs'}: {target.relative_to(HERE)}")
            if record:
                target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
