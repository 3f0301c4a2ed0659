# SPDX-License-Identifier: GPL-2.0-only
"""What a store is asked for, by a server that answers as S3 does and refuses what a test says."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.bucket import address
from tlstax.analysis.fleet.bucket.address import Bucket

BUCKET = Bucket("fleet", "all")
MB: Final = 1 << 20
_REFUSED: Final = b"<Error><Code>AccessDenied</Code><Message>refused</Message></Error>"
_STARTED: Final = (
    b"<InitiateMultipartUploadResult><Bucket>fleet</Bucket><Key>k</Key>"
    b"<UploadId>1</UploadId></InitiateMultipartUploadResult>"
)
_ENDED: Final = (
    b"<CompleteMultipartUploadResult><Bucket>fleet</Bucket><Key>k</Key><ETag>e</ETag>"
    b"</CompleteMultipartUploadResult>"
)


class Store(ThreadingHTTPServer):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.refused = ""
        """Requests that match this pattern are refused."""

    def published(self) -> list[str]:
        """The requests that make an object appear."""
        return [
            one
            for one in self.asked
            if re.fullmatch(r"PUT [^?]*|POST .*\?uploadId=1", one) and not self.refuses(one)
        ]

    def refuses(self, asked: str) -> bool:
        return bool(self.refused) and re.search(self.refused, asked) is not None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base says
        """Nothing."""

    def answer(self) -> None:
        self._read()
        asked = f"{self.command} {self.path}"
        self.server.asked.append(asked)
        content = _STARTED if asked.endswith("?uploads") else _ENDED if "POST" in asked else b""
        status = 200
        if self.server.refuses(asked):
            status, content = 403, _REFUSED
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_POST = answer  # noqa: N815 - as its base says

    def _read(self) -> None:
        if self.headers.get("Transfer-Encoding") != "chunked":
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            self.rfile.read(size + 2)
        while self.rfile.readline().strip():
            pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    served = Store()
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{served.server_port}")
    address._client.cache_clear()
    yield served
    address._client.cache_clear()
    served.shutdown()
    thread.join()
    served.server_close()


def file_of(tmp_path: Path, size_bytes: int) -> Path:
    made = tmp_path / "object"
    made.write_bytes(bytes(size_bytes))
    return made


def test_a_small_object_is_one_request(store: Store, tmp_path: Path) -> None:
    BUCKET.put(file_of(tmp_path, MB), "k")
    assert store.asked == ["PUT /fleet/all/k"]


@pytest.mark.parametrize("refused", [r"\?uploads$", "partNumber=1", "partNumber=2", "uploadId=1$"])
def test_a_large_object_that_is_refused_is_not_published(
    store: Store, tmp_path: Path, refused: str
) -> None:
    large = file_of(tmp_path, 24 * MB)
    BUCKET.put(large, "k")
    assert len(store.published()) == 1
    store.asked.clear()
    store.refused = refused
    with pytest.raises(TlstaxError, match="refused") as raised:
        BUCKET.put(large, "k")
    assert raised.value.exit_code == ExitCode.IO
    assert any(store.refuses(one) for one in store.asked)
    assert store.published() == []  # not even an empty one


def test_a_small_object_that_is_refused_is_told(store: Store, tmp_path: Path) -> None:
    store.refused = "PUT"
    with pytest.raises(TlstaxError, match=r"cannot write s3://fleet/all/k: .*refused"):
        BUCKET.put(file_of(tmp_path, MB), "k")
