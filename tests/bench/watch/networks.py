# SPDX-License-Identifier: GPL-2.0-only
"""What the networks of clients cost: run time of the boundaries' programs for a TLS connection.

python -m tlstax.tests.bench.watch.networks

A private MariaDB, CONNECTIONS connections in each recording at level `handshake`, with
--client-networks and without in turn; times are the kernel's own statistics of BPF programs. The
trap that leads to a program is not in them.
"""

import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.probes.model import Level
from tlstax.tests.e2e.recording.watch_runs import connect, server_of
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries

ROUNDS: Final = 10
CONNECTIONS: Final = 200


class Found(NamedTuple):
    """Of one recording, for each handshake."""

    runs: float
    run_ns: float
    handshakes: int


def measured(server: PrivateServer, folder: Path, *, networks: bool) -> Found:
    """Record the connections."""
    plan, stream = folder / "plan", folder / "stream"
    target, planned = plan_in_child(server.pid, Level.HANDSHAKE, networks=networks)
    plan.write_text(plan_file_text(target, planned, Safety()))
    command = [str(recorder_path()), "--plan", str(plan), "--pid", str(server.pid)]
    command += ["--output", str(stream)]
    command += ["--client-networks", "24,48"] if networks else []
    stream.unlink(missing_ok=True)
    with subprocess.Popen(command, stderr=subprocess.PIPE) as recorder:
        assert recorder.stderr is not None
        assert b"attached to" in recorder.stderr.readline()
        connect(server, CONNECTIONS)
        recorder.terminate()
    with stream.open("rb") as file:
        replay, count = Replay(file), 0
        while replay.next_window():
            count += len(replay.handshake_records())
        run_ns, runs = map(
            sum, zip(*(replay.programs[name] for name in ("on_enter", "on_leave")), strict=True)
        )
        hits = sum(replay.site_hits())
    return Found(hits / count, run_ns / runs * hits / count, count)


def main() -> None:
    """Print each round and the median of the differences."""
    differences, ratios = [], []
    with tempfile.TemporaryDirectory() as name, server_of(Binaries.find().server) as server:
        for number in range(ROUNDS):
            order = (True, False) if number % 2 else (False, True)
            found = {on: measured(server, Path(name), networks=on) for on in order}
            differences.append(found[True].run_ns - found[False].run_ns)
            ratios.append(found[True].run_ns / found[False].run_ns)
            print(found[False], found[True])
    print(
        f"{statistics.median(differences):.0f} ns more for a handshake "
        f"({min(differences):.0f}..{max(differences):.0f}), "
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f}), "
        f"{ROUNDS} pairs"
    )


if __name__ == "__main__":
    main()
