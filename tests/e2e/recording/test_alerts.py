# SPDX-License-Identifier: GPL-2.0-only
"""Each alert fires in Debian's Prometheus at its planted fault, and at no other.

A minute of the rules is a second here, and a day 40 s: what is planted grows as fast. Each fault is
an instance of its own, and one instance has none. `make test-alerts` runs it.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tlstax.tests.e2e.recording import prometheus_server
from tlstax.tests.unit.report.test_metrics import FAULTS, HEALTHY, STARTS

HEALTHY_S, PATIENCE_S = 65, 180
NONE = "none"
pytestmark = pytest.mark.long


def hurried(rules: str) -> str:
    """The rules in seconds instead of minutes."""
    rules = re.sub(r"for: \d+m", "for: 1s", rules)
    rules = re.sub(r"\[(\d+)m\]", r"[\1s]", rules)
    rules = rules.replace("[1h]", "[20s]").replace("offset 1d", "offset 40s")
    return rules.replace("offset 25h", "offset 60s")


def exposed(instance: str, seconds: float) -> Iterator[str]:
    """The series of an instance, so long after the start."""
    fault = FAULTS.get(instance, {})
    late = max(0.0, seconds - HEALTHY_S)
    for name, each in HEALTHY.items():
        start, now = STARTS.get(name, 0), fault.get(name, each)
        if now < 0:
            value = 0.0 if late else float(start)
        else:
            value = start + each * min(seconds, HEALTHY_S) + now * late
        whole, _, labels = name.partition("{")
        more = f",{labels}" if labels else "}"
        yield f'{whole}{{instance="{instance}"{more} {value!r}\n'


@pytest.fixture
def planted() -> Iterator[int]:
    """The port of an exporter of healthy and faulty servers."""
    began_s = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seconds = time.monotonic() - began_s
            lines = [line for one in (NONE, *FAULTS) for line in exposed(one, seconds)]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(lines).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base says
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_alert_fires_at_its_fault_alone(
    planted: int, tmp_path: Path, repository: Path, spawn: Callable[..., Any]
) -> None:
    rules = (repository / "docs/monitoring/tlstax-alerts.yml").read_text()
    ask = prometheus_server.start(tmp_path, hurried(rules), planted, spawn)
    fired: dict[str, set[str]] = defaultdict(set)
    wanted = {fault: {fault} for fault in FAULTS}
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and fired != wanted:
        for row in ask("alerts"):
            if row["state"] == "firing":
                fired[row["labels"]["instance"]].add(row["labels"]["alertname"])
        time.sleep(0.5)
    assert dict(fired) == wanted
