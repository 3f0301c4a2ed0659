# SPDX-License-Identifier: GPL-2.0-only
"""Every bpftrace program is taken by the bpftrace of this host, and by another one where named.

TLSTAX_BPFTRACE_DRY_RUN names further ones, as `make test` does with that of a newer Debian; those
of TLSTAX_BPFTRACE (`make test-bpftrace`) also run against a server, in tests/e2e.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.collectors.host.tracefs import prepare_tool
from tlstax.collectors.sources.bpftrace.process import find_bpftrace
from tlstax.probes import programs
from tlstax.tests.patience import COMMAND_S

FOLDER = Path(__file__).resolve().parents[2] / "probes"
NAMED = ("TLSTAX_BPFTRACE", "TLSTAX_BPFTRACE_DRY_RUN")
TOOLS = ["bpftrace", *(path for name in NAMED for path in os.environ.get(name, "").split())]


def dry_run(tool: str, path: Path) -> "subprocess.CompletedProcess[str]":
    """Newer versions attach and end; 0.17 compiles. A hang is an error, not a wait."""
    version = find_bpftrace(Path(tool)).version
    how = "--dry-run" if version >= (0, 20) else "-d"
    return subprocess.run(
        [tool, how, "-f", "json", str(path), str(os.getpid())] if how == "--dry-run"
        else [tool, how, str(path), str(os.getpid())],
        capture_output=True, text=True, check=False, timeout=COMMAND_S, preexec_fn=prepare_tool,
    )  # fmt: skip


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", programs.names())
def test_dry_run(tool: str, name: str) -> None:
    done = dry_run(tool, FOLDER / f"{name}.bt")
    errors = [line for line in done.stderr.splitlines() if "MEMLOCK" not in line]
    assert not [line for line in errors if "ERROR" in line or "WARNING" in line], errors
    assert done.returncode == ExitCode.OK
