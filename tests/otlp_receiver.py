# SPDX-License-Identifier: GPL-2.0-only
"""A server that receives OTLP metrics and profiles and takes the protocol's messages apart."""

import gzip
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
)

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.rollup.capture import RolledUp

PATIENCE_S: Final = 60
ENDLESS_MOST: Final = 64 << 20
_KINDS: Final[dict[str, tuple[Any, Any]]] = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1development/profiles": (ExportProfilesServiceRequest, ExportProfilesServiceResponse),
}
"""What is sent and what is answered, by path."""


class Collector(ThreadingHTTPServer):
    """Receives what a watch sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[tuple[int, bytes]] = []
        """Status and content of the next answers; then all is well."""
        self.is_endless = False
        """Whether an answer never ends."""
        self.sent_bytes = 0
        """Of answers without an end."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self, at: int = -1) -> dict[str, Any]:
        """Those of a request, by name."""
        (whole,) = self.requests[at].resource_metrics
        (scope,) = whole.scope_metrics
        return {one.name: one for one in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        assert self.headers["Content-Type"] == "application/x-protobuf"
        request_of, answer_of = _KINDS[self.path]
        request = request_of()
        request.ParseFromString(content)
        good = answer_of().SerializeToString()
        status, answer = self.server.answers.pop(0) if self.server.answers else (200, good)
        if status == 200:
            self.server.headers.append({"path": self.path, **self.headers})
            self.server.requests.append(request)
        self.send_response(status)
        if self.server.is_endless:
            self.end_headers()
            with suppress(OSError):  # it is cut off
                while self.server.sent_bytes < ENDLESS_MOST:
                    self.server.sent_bytes += self.wfile.write(bytes(4096))
            return
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base says
        """Nothing."""


def named(request: Any, indices: Any) -> dict[str, str]:
    """Attributes by name."""
    words = request.dictionary.string_table
    found = [request.dictionary.attribute_table[at] for at in indices]
    return {words[one.key_strindex]: one.value.string_value for one in found}


def stacks(rolled: RolledUp) -> list[columns.Stacks]:
    """The rows of an hour that are sent."""
    return [row for row in rolled.rows["1h"][columns.Stacks] if isinstance(row, columns.Stacks)]


def until(is_so: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.02)
    assert is_so()
