# SPDX-License-Identifier: GPL-2.0-only
"""A data set in a store that speaks S3: SeaweedFS, as one process of this host.

TLSTAX_TEST_S3=http://HOST:PORT takes another store, with the credentials of the environment, which
may make and fill a bucket tlstax-test-….
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.fs
import pytest

from tlstax import ExitCode
from tlstax.analysis.fleet.bucket import address
from tlstax.tests.fleet_rows import totals
from tlstax.workloads.servers.server_directory import free_port

DEMO = Path(__file__).resolve().parents[2] / "docs/demo/demo.tlstax"
KEY: Final = secrets.token_hex(10).upper()
SECRET: Final = secrets.token_hex(20)
_PATIENCE_S: Final = 60
_PUT: Final = """
import sys
from pathlib import Path
from tlstax.analysis.fleet.bucket import address
address._client(is_small=False)
print("ready", flush=True)
address.parse(sys.argv[1]).put(Path(sys.argv[2]), sys.argv[3])
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a store is."""
    if other := os.environ.get("TLSTAX_TEST_S3"):
        yield other
        return
    folder = tmp_path_factory.mktemp("store")
    rights = {
        "name": "tlstax",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [rights]}))
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    ports = {name: free_port() for name in (*names, *(f"{name}.grpc" for name in names))}
    command = [
        str(Path(sys.executable).parent / "weed"), "server", "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1", f"-dir={folder}", "-volume.max=200", "-master.volumeSizeLimitMB=256",
        "-filer", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0",
        "-s3.port.lance=0", *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            url = f"http://127.0.0.1:{ports['s3.port']}"
            _wait(url, server, folder / "log")
            yield url
        finally:
            server.kill()
            server.wait()


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError:
            return  # it wants a signature
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text(errors="replace")[-2000:])


@pytest.fixture
def data(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[address.Bucket]:
    """An empty bucket."""
    if "TLSTAX_TEST_S3" not in os.environ:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address._client.cache_clear()
    made = address.Bucket(f"tlstax-test-{secrets.token_hex(4)}", "fleet/all")
    client(endpoint).create_dir(made.name)
    yield made
    address._client.cache_clear()


def client(endpoint: str) -> Any:
    scheme, _, host = endpoint.partition("://")
    return pyarrow.fs.S3FileSystem(
        endpoint_override=host, scheme=scheme, region="us-east-1", allow_bucket_creation=True
    )


def command(data: address.Bucket | Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tlstax", "fleet", words[0], "--data", str(data), *words[1:]]


def run(data: address.Bucket | Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(data, *words), capture_output=True, text=True, check=False)


def reference(folder: Path, hosts: int) -> dict[str, Any]:
    for number in range(hosts):
        assert run(folder, "add", str(DEMO), "--host", f"db{number}").returncode == 0
    return totals(folder)


def test_a_bucket_answers_as_a_folder_does(data: address.Bucket, tmp_path: Path) -> None:
    answers = []
    for where in (data, tmp_path / "folder"):
        for host in ("db1", "db2"):
            added = run(where, "add", str(DEMO), "--host", host)
            assert "26.4 s: added" in added.stdout, added.stderr
        again = run(where, "add", str(DEMO), "--host", "db1")
        assert "already in the data set" in again.stdout
        assert run(where, "compact").returncode == 0
        found = []
        for words in (["top"], ["explain", "db1"], ["top", "--by", "resumed_share"]):
            answer = run(where, *words, "--json", "-")
            assert answer.returncode == 0, answer.stderr
            document = json.loads(answer.stdout)
            assert document["scope"].pop("data") == str(where)
            found.append(document)
        rows = run(where, "sql", "SELECT * FROM ledger ORDER BY ALL", "--json", "-")
        found.append(json.loads(rows.stdout))
        answers.append(found)
    assert answers[0] == answers[1]


def test_writers_and_compactions_at_once_lose_nothing(data: address.Bucket, tmp_path: Path) -> None:
    # Two recordings are added by two writers each, and two compactions run meanwhile.
    first = subprocess.run(command(data, "add", str(DEMO), "--host", "db0"), check=True)
    assert first.returncode == 0
    running = [
        subprocess.Popen(command(data, "add", str(DEMO), "--host", f"db{number}"))
        for number in (1, 2, 3, 3, 4, 4)
    ]
    while any(one.poll() is None for one in running):
        both = [subprocess.Popen(command(data, "compact")) for _ in range(2)]
        assert [one.wait(_PATIENCE_S) for one in both] == [0, 0]
    assert [one.wait() for one in running] == [0] * len(running)
    expected = reference(tmp_path / "folder", 5)
    assert totals(data) == expected
    assert run(data, "compact").returncode == 0
    assert totals(data) == expected


def test_a_writer_that_is_killed_is_not_counted(data: address.Bucket, tmp_path: Path) -> None:
    expected = reference(tmp_path / "folder", 1)
    seen = 0
    for objects in (1, 8, 15):
        prefix = address.Bucket(data.name, f"killed/{objects}")
        writer = subprocess.Popen(command(prefix, "add", str(DEMO), "--host", "db0"))
        while len(prefix.listing("")) < objects and writer.poll() is None:
            time.sleep(0.005)
        writer.kill()
        is_killed = writer.wait() != 0
        if is_killed and not any("interval" in one.key for one in prefix.listing("")):
            assert run(prefix, "top").returncode == ExitCode.USAGE  # as if nothing were there
            seen += 1
        assert run(prefix, "add", str(DEMO), "--host", "db0").returncode == 0
        assert totals(prefix) == expected
    assert seen > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_put_that_is_interrupted_publishes_the_whole_or_nothing(
    data: address.Bucket, tmp_path: Path, number: signal.Signals
) -> None:
    big = tmp_path / "big"
    big.write_bytes(secrets.token_bytes(1 << 20) * 48)
    sizes = []
    for delay_s in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        name = f"put-{delay_s}"
        words = [sys.executable, "-c", _PUT, str(data), str(big), name]
        writer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay_s)
        writer.send_signal(number)
        writer.wait(_PATIENCE_S)
        writer.stdout.close()
        sizes.append({one.key: one.size_bytes for one in data.listing("")}.get(name))
    assert None in sizes  # else nothing was interrupted
    assert set(sizes) <= {None, big.stat().st_size}


def test_keys_are_in_no_output_and_no_file(
    data: address.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = ""
    for words in (["add", str(DEMO), "--host", "db1"], ["compact"], ["top", "--json", "-"]):
        done = run(data, *words)
        assert done.returncode == 0
        printed += done.stdout + done.stderr
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    held = [path.read_bytes() for path in files]
    held += [b"".join(data.read(one.key)) for one in data.listing("")]
    right = os.environ["AWS_SECRET_ACCESS_KEY"]
    if "TLSTAX_TEST_S3" not in os.environ:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong := secrets.token_hex(20))
        for words in (["add", str(DEMO)], ["top"], ["compact"]):
            refused = run(data, *words)
            assert refused.returncode == ExitCode.IO
            assert "Traceback" not in refused.stderr
            assert "the credentials of this environment" in refused.stderr
            printed += refused.stdout + refused.stderr
        assert wrong not in printed
    for secret in (right, os.environ["AWS_ACCESS_KEY_ID"]):
        assert secret not in printed
        assert not any(secret.encode() in one for one in held)


def test_a_store_that_is_away_is_told(
    data: address.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    for words in (["add", str(DEMO)], ["top"]):
        refused = run(data, *words)
        assert refused.returncode == ExitCode.IO
        assert "NETWORK_CONNECTION" in refused.stderr
        assert "Traceback" not in refused.stderr
