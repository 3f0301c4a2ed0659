# SPDX-License-Identifier: GPL-2.0-only
"""A round whose data set has no room: no recording is lost, and what to do is said."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main

pytestmark = pytest.mark.root

# As `tlstax attach --ssh`; the host `frees` makes room.
ATTACH: Final = """
import os, shutil, sys
words = sys.argv[1:]
if words[words.index("--ssh") + 1] == "frees":
    os.remove(os.environ["ROUND_FILLER"])
shutil.copy(os.environ["ROUND_CAPTURE"], words[words.index("--output") + 1])
"""
ROUND: Final = """
import sys
from tlstax.analysis.fleet import rounds
rounds.PROGRAM = (sys.executable, "-c", sys.argv.pop(1))
from tlstax.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
SIZE: Final = "2m"
IN_FULL: Final = f"""
set -e
mount -t tmpfs -o size={SIZE} tlstax-test "$1"
head -c 2020k /dev/zero > "$ROUND_FILLER"
shift
exec "$@"
"""


def round_into_full(
    folder: Path, repository: Path, hosts: str
) -> "subprocess.CompletedProcess[str]":
    """A round of these hosts whose data set is on a full disk of its own."""
    data, kept, hosts_file = folder / "data", folder / "tmp", folder / "hosts"
    data.mkdir()
    kept.mkdir()
    hosts_file.write_text(hosts)
    known = os.environ | {
        "ROUND_CAPTURE": str(repository / "docs/demo/demo.tlstax"),
        "ROUND_FILLER": str(data / "filler"),
        "TMPDIR": str(kept),
    }
    command = ["unshare", "--mount", "sh", "-c", IN_FULL, "sh", str(data), sys.executable, "-c"]
    command += [ROUND, ATTACH, "fleet", "record", "--hosts", str(hosts_file), "--name", "mysqld"]
    command += ["--for", "1s", "--parallel", "1", "--data", str(data)]
    return subprocess.run(command, env=known, capture_output=True, text=True, check=False)


def test_a_full_disk_costs_lines_and_no_recording(tmp_path: Path, repository: Path) -> None:
    done = round_into_full(tmp_path, repository, "db1 eu\ndb2\n")
    assert done.returncode == ExitCode.IO, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    for host in ("db1", "db2"):
        assert lines[host].startswith("recorded, but cannot write to the data set"), done.stdout
        assert "no space left on device" in lines[host]
        assert Path(lines[host].rsplit(" ", 1)[1]).is_file()
    assert "0 of 2 hosts" in done.stderr
    assert "2 recordings are not in the data set" in done.stderr
    assert "Traceback" not in done.stderr
    # The command that it names puts the first of them there, under the name that the round has.
    words = shlex.split(done.stderr.splitlines()[-1].rpartition(": ")[2].rstrip("."))
    assert words[0] == "tlstax"
    assert main(words[1:]) == ExitCode.OK
    hosts = tmp_path.glob("data/tier=1h/table=host/*/*/*.parquet")
    assert b"db1" in b"".join(path.read_bytes() for path in hosts)


def test_what_found_no_room_is_tried_again_at_the_end(tmp_path: Path, repository: Path) -> None:
    done = round_into_full(tmp_path, repository, "db1\nfrees\n")
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "db1: recorded, but" in done.stdout
    assert "db1: recorded; it is in the data set now" in done.stdout
    assert "2 of 2 hosts" in done.stderr
    assert not list((tmp_path / "tmp").iterdir()), "captures that are in the data set"
