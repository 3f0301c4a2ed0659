# SPDX-License-Identifier: GPL-2.0-only
"""Does `tlstax whatif` foretell what happens? Predictions against real runs on MariaDB.

Each case is a pair of set-ups: rounds of both take turns and are recorded, the prediction is made
from the rounds of the first alone and must contain what the second measured. Micro-costs are
measured between the rounds' end and the prediction, on the same machine. The cases:

    RSA-2048 to ECDSA P-256, RSA-4096 to RSA-2048: sysbench connects, asks, disconnects
    no resumption to 90 %: a client that resumes, the same without
    pooling: one query on each connection to twenty, told what a query costs on a warm connection
    ciphers: results of 64 KB over TLS 1.2 and 1.3, to a cheaper and to a more expensive one

Run by `make check-whatif`; prints a table (--markdown: as in docs/whatif.md). Exit status 1 where
an interval does not contain the measured value. An interval wider than +-20 % is no prediction, and
is printed as such; it fails the check, too. With --held-out the cases are others (cases.py),
and nine of ten must be contained, and predicted better than by "no change" (score.py).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.compare import replicates
from tlstax.analysis.compare.selections import RecordingSelection, matching
from tlstax.analysis.model.whatif import Forecast
from tlstax.analysis.quantities import share
from tlstax.analysis.quantities import time as time_text
from tlstax.analysis.rows import tables
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.whatif import cipher_change, forecast, predict, recorded
from tlstax.certs.generate import KeyKind
from tlstax.collectors.capture.ciphers import SUITES
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run, Status
from tlstax.collectors.microbench import micro_costs
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.tests.truth.whatif import score
from tlstax.tests.truth.whatif.cases import CASES, HELD_OUT, WARM, Case, Setup
from tlstax.workloads.drivers.model import DriveResult
from tlstax.workloads.servers.connections import await_quiet, socket_count
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.tls import TlsChoice

SAMPLE_HZ = 997


@contextmanager
def servers(setups: list[Setup]) -> Iterator[dict[str, PrivateServer]]:
    """A server for each kind of key and cipher."""
    with ExitStack() as stack:
        found = {}
        for name, setup in {setup.server: setup for setup in setups}.items():
            choice = TlsChoice(setup.version, setup.suite) if setup.suite else TlsChoice()
            request = ServerRequest(key=KeyKind.parse(setup.key), tls=choice)
            found[name] = stack.enter_context(PrivateServer(request))
        yield found


def record(setups: list[Setup], rounds: int, seconds: int, folder: Path) -> dict[str, Path]:
    """Every set-up in every round, each into a capture of its server; the captures by server."""
    captures = {setup.server: folder / f"{setup.server}.tlstax" for setup in setups}
    with servers(setups) as running, ExitStack() as stack:
        statuses = {
            name: stack.enter_context(server.open_status()) for name, server in running.items()
        }
        quiet = {key: socket_count(server.pid) for key, server in running.items()}
        for setup in setups:
            setup.drive(running[setup.server], 1, time.sleep)
        recorders = {
            key: stack.enter_context(
                Recorder(Request(server.pid, captures[key], sample_hz=SAMPLE_HZ))
            )
            for key, server in running.items()
        }
        run_id = 0
        for number in range(rounds):
            for setup in setups if number % 2 == 0 else setups[::-1]:
                run_id += 1
                recorder, server = recorders[setup.server], running[setup.server]
                status = statuses[setup.server]
                readings = [status.read()]
                recorder.begin_run(run_id)
                driven = setup.drive(server, seconds, recorder.poll)
                await_quiet(server.pid, quiet[setup.server], recorder.poll)
                totals = recorder.end_run()
                assert totals.handshake_count == driven.connection_count, setup.name
                readings.append(status.read())
                recorder.add([_row(run_id, setup, number, driven, totals.start_ns, totals.end_ns)])
                recorder.add(
                    Status(reading.time_ns, run_id, name, str(reading[name]))
                    for reading in readings
                    for name in ("Bytes_received", "Bytes_sent")
                )
    return captures


def _row(
    run_id: int, setup: Setup, number: int, driven: DriveResult, start_ns: int, end_ns: int
) -> Run:
    seen = driven.latencies
    return Run(
        run_id, "storm", setup.load, "tls", number, start_ns, end_ns, setup.threads,
        driven.connection_count, driven.operation_count, seen.mean_ns, seen.p95_ns,
        seen.max_ns, driven.client_cpu_ns, "{}",
    )  # fmt: skip


def side_of(setup: Setup, captures: dict[str, Path]) -> RecordingSelection:
    """The rounds of a set-up."""
    with CaptureReader.open(captures[setup.server]) as reader:
        rows = tables.load(reader)
    (group,) = matching(rows, setup.load)
    return RecordingSelection(setup.name, rows, group)


def measured(side: RecordingSelection) -> dict[str, tuple[float, float, float]]:
    """What the second set-up took, with its own interval."""
    base = replicates.of_side(side, side.group.operation, builtin(), by_driver=True)
    sources = ErrorSources({forecast.RECORDING: base.units})
    state = forecast.present(base, sources)
    latency = base.weights @ base.arm.latency_ns / base.operations
    found = {
        "server_cpu": state.by_parts + state.connection + state.query,
        "client_latency": sources.rows_of(forecast.RECORDING, latency),
    }
    return {
        name: (float(values[0]), *sources.interval(values, {})) for name, values in found.items()
    }


def foretell(case: Case, captures: dict[str, Path]) -> list[Forecast]:
    """The prediction from the first set-up alone."""
    side = side_of(case.before, captures)
    facts = recorded.handshake_facts(side)
    scenario, costs = case.scenario, None
    if scenario.pool is not None:
        scenario = replace(scenario, warm=side_of(WARM, captures))
    if scenario.key is not None or scenario.resume is not None:
        kinds = [case.before.key, scenario.key or case.before.key]
        signatures = ("rsa:2048", "rsa:3072", "rsa:4096", "ec:p256")
        costs = micro_costs.measure(signatures, kinds, facts.mutual, facts.tls_version)
        told = recorded.present_key(side, costs)
        assert told == case.before.key, f"taken for {told}"
        scenario = replace(scenario, present_key=told)
    if scenario.cipher is not None:
        now = cipher_change.present_cipher(side)
        assert case.before.suite == SUITES[now][case.before.version], f"taken for {now}"
        costs = micro_costs.measure((), (), facts.mutual, facts.tls_version, (now, scenario.cipher))
        scenario = replace(scenario, present_cipher=now)
    return predict.predict(side, scenario, costs).forecasts


def main() -> int:
    """Run the cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=int, default=2, help="of each run")
    parser.add_argument("--keep", type=Path, help="keep the captures in this folder")
    parser.add_argument("--reuse", action="store_true", help="predict again from kept captures")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--held-out", action="store_true", help="cases that nothing was fitted on")
    options = parser.parse_args()
    cases = HELD_OUT if options.held_out else CASES
    more = () if options.held_out else (WARM,)
    pairs = (setup for case in cases for setup in (case.before, case.after, *more))
    setups = list({setup.name: setup for setup in pairs}.values())
    with tempfile.TemporaryDirectory(prefix="tlstax-whatif-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        if options.reuse:
            captures = {one.server: folder / f"{one.server}.tlstax" for one in setups}
        else:
            captures = record(setups, options.rounds, options.seconds, folder)
        rows, failures, scored = [], 0, []
        for case in cases:
            found = measured(side_of(case.after, captures))
            for line in foretell(case, captures):
                row, is_right = _line(case, line, found[line.name])
                rows.append(row)
                failures += not is_right
                scored += score.of_forecast(line, found[line.name][0])
    _print(rows, markdown=options.markdown)
    print(score.summary(scored))
    return int(not score.is_enough(scored)) if options.held_out else int(failures > 0)


def _line(case: Case, line: Forecast, found: tuple[float, float, float]) -> tuple[list[str], bool]:
    """A row of the table, and whether the interval contains what was measured."""
    value, low, high = (time_text(number) for number in found)
    if line.then is None:
        return [case.name, line.label, time_text(line.now.value_ns), "not predicted", "", value,
                f"{low} .. {high}", line.reason], True  # fmt: skip
    low_ns, high_ns = line.then.low_ns or 0.0, line.then.high_ns or 0.0
    contains = low_ns <= found[0] <= high_ns
    verdict = "contains it" if contains else "MISSED"
    if line.is_wide:
        verdict = f"{verdict}, TOO WIDE"
    return [
        case.name, line.label, time_text(line.now.value_ns),
        f"{time_text(low_ns)} .. {time_text(high_ns)}", f"±{share(line.half_width_share)}",
        value, f"{low} .. {high}", verdict,
    ], contains and not line.is_wide  # fmt: skip


def _print(rows: list[list[str]], *, markdown: bool) -> None:
    head = ["case", "figure", "before", "predicted", "±", "measured", "95 %", "interval"]
    if markdown:
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        for row in rows:
            print("| " + " | ".join(row).replace("\u00a0", " ") + " |")
        return
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    if os.geteuid():
        raise SystemExit("recording takes root")
    sys.exit(main())
