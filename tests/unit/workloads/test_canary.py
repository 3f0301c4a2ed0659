# SPDX-License-Identifier: GPL-2.0-only
"""The canary's figures, and what it refuses."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.__main__ import main
from tlstax.workloads.canary import Access, Client, Pair, Run, measure, summarize
from tlstax.workloads.canary_command import place_of, text_of

MS = 1_000_000
# A client program: TLS or not by its arguments, and what it says to its third `connect`.
CLIENT = """#!{python}
import os, sys, time
if "--version" in sys.argv:
    print("mariadb from 11, MariaDB")
    sys.exit()
with open({log!r}, "a") as log:
    print(os.getpid(), *sys.argv[1:], *os.environ, file=log)
cipher = "" if "--skip-ssl" in sys.argv else "AES"
connects = 0
for line in sys.stdin:
    if line == "connect;\\n":
        connects += 1
    elif "Ssl_cipher" in line:
        print("Ssl_cipher\\t" + cipher)
    elif line == "SELECT 1;\\n":
        if connects == 3 and {third!r}:
            print({third!r})
            sys.exit(1)
        print(1)
    else:
        print(line.split("'")[1])
    sys.stdout.flush()
"""
FakeClient = Callable[..., Access]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Puts a client program in the place of the host's."""

    def make(third: str = "") -> Access:
        program = tmp_path / "mariadb"
        log = str(tmp_path / "log")
        program.write_text(CLIENT.format(python=sys.executable, log=log, third=third))
        program.chmod(0o700)
        monkeypatch.setenv("PATH", str(tmp_path))
        return Access(option_file=tmp_path / "account.cnf")

    return make


def ended(log: Path) -> bool:
    """Whether all client programs have ended."""
    pids = [line.split()[0] for line in log.read_text().splitlines()]
    return len(pids) == 2 and not any(Path("/proc", pid).exists() for pid in pids)


def pairs(count: int, added_ns: int) -> Run:
    """Pairs that a busy server makes slow from time to time, both connections of them."""
    slow = [MS * (1 + at % 5) for at in range(count)]
    made = [Pair(one, one + added_ns + at * 1000) for at, one in enumerate(slow)]
    return Run(made, 1000 * MS * count)


def test_the_difference_is_that_of_pairs_and_has_an_interval_from_eight_on() -> None:
    found = summarize(pairs(40, 3 * MS))
    assert 2.9 * MS < found.low_ns <= found.difference_ns <= found.high_ns < 3.1 * MS
    assert found.has_interval
    assert "95 % interval of 40 pairs" in text_of(found)
    few = text_of(summarize(pairs(7, 3 * MS)))
    assert few.startswith("Too few pairs (7, differences 3.00 ms to 3.01 ms)")
    assert "95 %" not in few


def test_no_difference_is_not_called_one() -> None:
    mixed = [Pair(MS, MS + (at % 3 - 1) * 1000) for at in range(30)]
    assert text_of(summarize(Run(mixed, MS))).startswith("No difference seen")


def test_the_cost_is_bounded_by_the_time_of_the_connections() -> None:
    run = Run([Pair(2 * MS, 8 * MS)] * 10, 10_000 * MS)
    assert summarize(run).busy_share == pytest.approx(0.01)


def test_a_slow_server_has_as_much_rest_as_work(client: FakeClient) -> None:
    rests: list[float] = []
    run = measure(client(), 1e9, 0.2, rests.append)
    for pair, rest in zip(run.pairs, rests, strict=True):
        assert rest >= (pair.plaintext_ns + pair.tls_ns) / 1e9


def test_nothing_of_the_environment_but_places_of_files_is_passed_on(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PWD", "secret")
    monkeypatch.setenv("OPENSSL_CONF", "/dev/null")
    measure(client(), 5.0, 0.0, lambda _: None)
    for line in (tmp_path / "log").read_text().splitlines():
        assert "OPENSSL_CONF" in line
        assert "MYSQL_PWD" not in line


@pytest.mark.parametrize("error", [KeyboardInterrupt, TlstaxError])
def test_a_run_that_ends_early_has_its_pairs(
    client: FakeClient, tmp_path: Path, error: type[BaseException]
) -> None:
    """At the third pair: Ctrl-C in its pause, or a refusal."""
    rests = 0

    def rest(_: float) -> None:
        nonlocal rests
        rests += 1
        if rests == 2 and error is KeyboardInterrupt:
            raise KeyboardInterrupt

    third = "ERROR 1040 (08004): Too many connections" if error is TlstaxError else ""
    run = measure(client(third), 5.0, 60.0, rest)
    assert len(run.pairs) == 2
    assert ended(tmp_path / "log")
    if error is TlstaxError:
        assert "1040" in str(run.failure)
        assert "two connections left" in str(run.failure)
    else:
        assert run.failure is None


def test_a_client_that_is_interrupted_at_its_start_is_ended(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Client] = []

    def interrupted(one: Client) -> None:
        made.append(one)
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(client(), 5.0, 60.0)
    assert [one._process.poll() is not None for one in made] == [True]


def test_what_was_measured_is_printed_before_the_failure(
    client: FakeClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client("ERROR 2002 (HY000): Can't connect")
    file = tmp_path / "account.cnf"
    file.touch(0o600)
    assert main(["canary", "--option-file", str(file), "--rate", "5"]) == 4
    said = capsys.readouterr()
    assert said.out.startswith("Too few pairs (2,")
    assert "Check host and port" in said.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_its_pairs(
    client: FakeClient, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A service manager or `timeout` ended it without a word."""
    client()
    file = tmp_path / "account.cnf"
    file.touch(0o600)
    connected = 0
    connect = Client.connect

    def fifth(one: Client) -> int:
        nonlocal connected
        connected += 1
        if connected == 5:
            os.kill(os.getpid(), number)
        return connect(one)

    monkeypatch.setattr(Client, "connect", fifth)
    before = signal.getsignal(number)
    caught = []
    signal.signal(number, lambda *_: caught.append(number))
    try:
        command = ["canary", "--option-file", str(file), "--rate", "5", "--for", "10s"]
        assert main(command) == 0
    finally:
        signal.signal(number, before)
    assert not caught, "it is handled by the command"
    assert capsys.readouterr().out.startswith("Too few pairs (2,")
    assert ended(tmp_path / "log")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("db1", ("db1", None)),
        ("db1:3307", ("db1", 3307)),
        ("::1", ("::1", None)),
        ("[::1]", ("::1", None)),
        ("[::1]:3307", ("::1", 3307)),
    ],
)
def test_servers(server: str, expected: tuple[str, int | None]) -> None:
    assert place_of(server) == expected


def test_a_verification_that_the_option_file_asks_for_stays_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tlstax.workloads.canary.is_mariadb", lambda _: False)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    command = Access(option_file=Path("account.cnf")).command("tls")
    assert not [word for word in command if word.startswith("--ssl")]


def test_no_user_and_no_password_is_an_argument(tmp_path: Path) -> None:
    file = tmp_path / "account.cnf"
    file.write_text("[client]\nuser=u\npassword=secret\n")
    for arm in ("plaintext", "tls"):
        command = Access(option_file=file, host="db1", port=3307).command(arm)
        assert "secret" not in " ".join(command)
        assert {"--protocol=TCP", "--host=db1", "--port=3307"} <= {*command}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "6"], "between 1 and 5"),
        (["--for", "1s"], "between 2s and 24h"),
        (["--for", "48h"], "between 2s and 24h"),
        (["--server", "db1:x"], "no port"),
        (["--server", ":3306"], "no host"),
        (["--option-file", "missing.cnf"], "no file"),
        (["--option-file", "a" * 300], "File name too long"),
    ],
)
def test_odd_arguments_are_refused(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "account.cnf"
    file.write_text("[client]\n")
    file.chmod(0o600)
    given = ["canary", "--option-file", str(file), *arguments]
    assert main(given) != 0
    assert words in capsys.readouterr().err


def test_a_file_that_others_may_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "account.cnf"
    file.touch()
    os.chmod(file, 0o644)
    assert main(["canary", "--option-file", str(file)]) != 0
    assert "chmod 600" in capsys.readouterr().err
