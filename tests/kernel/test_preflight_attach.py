# SPDX-License-Identifier: GPL-2.0-only
"""`attach` refuses, or leaves out, what preflight found, and the capture says so."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.preflight.hazards import load_hazards
from tlstax.collectors.preflight.judge import Finding, Status
from tlstax.collectors.preflight.kernel_build import has_symbol
from tlstax.collectors.preflight.safety import Safety, restrictions
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Process = subprocess.Popen[bytes]
HOST, TARGET = 3, 4


@pytest.fixture
def attached(tlstax: list[str], repository: Path, tmp_path: Path) -> "Attach":
    """A function that attaches to a process for a moment: exit code, errors, and the capture."""
    return Attach(tlstax, repository / "tests/testprogs", tmp_path / "a.tlstax")


class Attach:
    """`tlstax attach` to a process for half a second."""

    def __init__(self, tlstax: list[str], definitions: Path, capture: Path) -> None:
        self.command = [*tlstax, "attach", "--for", "500ms", "--quiet", "-o", str(capture)]
        self.command += ["--definitions", str(definitions)]
        self.capture = capture

    def to(self, pid: int, *options: str) -> tuple[int, str]:
        """Exit code and errors."""
        result = subprocess.run(
            [*self.command, str(pid), *options],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert "Traceback" not in result.stderr
        return result.returncode, result.stderr

    def gaps(self) -> dict[str, str]:
        """What the capture says is unavailable."""
        with CaptureReader.open(self.capture) as reader:
            return {row.subject: row.consequence for row in reader.rows(schema.Gap)}


@pytest.mark.parametrize("budget", ["5%", "none"])
def test_a_traced_process_is_refused_until_that_is_accepted(
    attached: Attach, traced: Process, budget: str
) -> None:
    attached.command += ["--budget", budget]
    code, errors = attached.to(traced.pid)
    assert code == TARGET
    assert "traces it" in errors
    assert "--accept tracer" in errors
    assert not attached.capture.exists()
    code, errors = attached.to(traced.pid, "--accept", "tracer")
    assert code == 0, errors
    assert attached.gaps()["preflight (tracer)"].startswith("Accepted: ")


def test_a_traced_process_is_refused_to_bpftrace(
    tlstax: list[str], traced: Process, repository: Path
) -> None:
    command = [*tlstax, "probes", "run", "offcpu", "--pid", str(traced.pid), "--for", "500ms"]
    command += ["--definitions", str(repository / "tests/testprogs"), "--accept", "return-probes"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert result.returncode == TARGET, result.stderr
    assert "--accept tracer" in result.stderr


def test_a_frozen_process_is_refused(attached: Attach, frozen: Process) -> None:
    code, errors = attached.to(frozen.pid)
    assert code == TARGET
    assert "its cgroup is frozen" in errors
    assert not attached.capture.exists()


def test_a_replaced_program_is_recorded_with_a_note(attached: Attach, replaced: Process) -> None:
    code, errors = attached.to(replaced.pid)
    assert code == 0, errors
    assert "preflight (replaced-files)" in errors
    assert "/server was replaced" in attached.gaps()["preflight (replaced-files)"]


def test_an_unknown_hazard_is_refused(attached: Attach, target: Process) -> None:
    code, errors = attached.to(target.pid, "--accept", "nonsense")
    assert code == 2
    assert "exit-race" in errors


# ---- variants of hazards that this kernel does not have ----


def found(*names: str) -> Safety:
    """The safety of a kernel with these hazards."""
    hazards = [hazard for hazard in load_hazards() if hazard.id in names]
    return restrictions([Finding(hazard, Status.VARIANT, "a test") for hazard in hazards])


def recorded(target: Process, capture: Path, safety: Safety) -> CaptureReader:
    """A recording of 500 handshakes with these restrictions."""
    assert target.stdin is not None
    assert target.stdout is not None
    definitions = Path(__file__).parents[1] / "testprogs"
    request = Request(target.pid, capture, 0.2, 999, definitions=definitions, safety=safety)
    with Recorder(request) as recorder:
        target.stdin.write(b"g")
        recorder.poll(1.0)
    return CaptureReader.open(capture)


def kinds(probes: Iterable[schema.Probe]) -> set[str]:
    return {probe.kind.removesuffix("_multi") for probe in probes}


def user_depths(reader: CaptureReader) -> set[int]:
    """How many frames the user stacks of samples have; 0 for none."""
    frames = {row.stack_id: len(row.frame_ids.split()) for row in reader.rows(schema.Stack)}
    ids = [sample.user_stack_id for sample in reader.rows(schema.SampleStack)]
    assert ids
    return {0 if number is None else frames[number] for number in ids}


def test_without_hazards_everything_is_on(target: Process, tmp_path: Path) -> None:
    with recorded(target, tmp_path / "a", Safety()) as reader:
        assert "uprobe" in kinds(reader.rows(schema.Probe))
        assert user_depths(reader) - {0, 1}
        assert list(reader.rows(schema.Handshake))


def test_no_user_stacks(target: Process, tmp_path: Path) -> None:
    with recorded(target, tmp_path / "a", found("exit-race")) as reader:
        assert user_depths(reader) <= {0, 1}  # the instruction pointer is known without a walk
        losses = {row.kind for row in reader.rows(schema.Loss) if row.lost_count}
        assert "user_stack_failed" not in losses
        assert list(reader.rows(schema.Handshake))


def test_no_samples(target: Process, tmp_path: Path) -> None:
    with recorded(target, tmp_path / "a", found("cpu-clock-free")) as reader:
        assert not list(reader.rows(schema.SampleStack))
        assert list(reader.rows(schema.Handshake))


def test_samples_only(target: Process, tmp_path: Path) -> None:
    with recorded(target, tmp_path / "a", found("hugetlb-text")) as reader:
        assert not {"uprobe", "uretprobe"} & kinds(reader.rows(schema.Probe))
        assert list(reader.rows(schema.SampleStack))
        assert not list(reader.rows(schema.Handshake))


@pytest.mark.skipif(not has_symbol("bpf_preempt_disable"), reason="before Linux 6.10")
def test_programs_that_cannot_be_preempted(target: Process, tmp_path: Path) -> None:
    with recorded(target, tmp_path / "a", found("private-stacks")) as reader:
        assert "uprobe" in kinds(reader.rows(schema.Probe))
        assert sum(row.hits_count for row in reader.rows(schema.Probe) if row.object != "kernel")
        assert list(reader.rows(schema.Handshake))


def test_no_return_probes(target: Process, tmp_path: Path) -> None:
    with recorded(target, tmp_path / "a", found("seccomp-return-probes")) as reader:
        assert "uretprobe" not in kinds(reader.rows(schema.Probe))


def test_samples_only_and_no_samples_leave_nothing(target: Process, tmp_path: Path) -> None:
    safety = found("hugetlb-text", "cpu-clock-free")
    assert safety.level_most == Level.SAMPLE
    with pytest.raises(Exception, match="--accept cpu-clock-free"):
        Recorder(Request(target.pid, tmp_path / "a", safety=safety))
    assert not list(tmp_path.iterdir())
