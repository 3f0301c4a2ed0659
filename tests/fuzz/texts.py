# SPDX-License-Identifier: GPL-2.0-only
"""Mutated definitions and recordings of other tools: lines and values that nobody writes."""

import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tlstax.__main__ import main

ROOT: Final = Path(__file__).parents[2]
VALUES: Final = (
    *('""', '"\\u001b[2J\\r\\u202e"', '"a/b"'),
    *('"*"', '"' + "*a" * 30 + '"', '"' + "a" * 30_000 + '"'),
    *("-1", "0", "1e400", "inf", "nan", "9" * 40),
    *("9" * 5000, "true", "[]", "{}", "1979-05-27", '["", 1]'),
    *('["*"]', '"_Z*"', '"(unclosed"', "'[\\d'"),
    *('{ name = "x", hits = -1 }', "[[]]", '["_Z1fv", "_Z1fv"]'),
    *("[" * 3000, '"""', '"command"', '"handshake"', '"phase"'),
    *('"wait"', '"blocked_lock"', "16", "3"),
    *('["\\u0000"]', '"é"', '"sleep"'),
    *('["main", "SSL_read", "SSL_*"]', '"SSL_do_handshake"', "{ a = 1 }"),
)  # fmt: skip
LINES: Final = (
    *("[[boundary]]", "[detect]", "[x.y.z]", "[[primitive]]", "[[role]]"),
    *("[[accessor]]", "=", "]", "id"),
    *("method_table = {}", "bytes = 16", "x = " + "{a=" * 1500),
    *("\x00", "# \x1b[31m", "a.b.c.d = 1"),
)  # fmt: skip
WORDS: Final = (
    *("", " ", "\x1b[2J", "\r", "\x9b", "\u202e", ";"),
    *("a;b", "+0x", "()", "[unknown]", "\t", "\x00", "²"),
    *("9" * 30, "-1", "0", "1" * 5000, "x" * 50_000),
    *("f" * 17, "[[" * 500, "(" * 3000, "<a, b>" * 500),
    *("0.0.0", "1.000000001:", "cycles:", "99999999999.000000001:", "_[k]"),
    *("1e3", "٣", "a\x85b", "'\"\\"),
)  # fmt: skip
SCRIPT: Final = """\
 3726 13232.307462335: cpu-clock:ppp:
\tffffffff81a00010 tcp_ack+0x10 ([kernel.kallsyms])
\t          29c463 [unknown] (/usr/lib/x86_64-linux-gnu/libcrypto.so.3)
\t          29f911 operator new(unsigned long)+0x1 (/a dir/lib (deleted))
\t          10 _Z10do_commandP3THDb+0x4 (/usr/sbin/mariadbd)
\t          20 start_thread+0x4 (/lib/libc.so.6)

    7 1.000000001:       4711 cycles:
\t 10 main (/bin/x)

mariadbd 36/3368 [001] 38742.191391:   10101010 cpu-clock:
\t           ff950 ASN1_TYPE_new+0x0 (/lib/libcrypto.so.3)
"""
FOLDED: Final = """\
mariadbd;clone3;start_thread;do_command;dispatch_command;SSL_read;aes_gcm 12
mariadbd;clone3;start_thread;do_command;recv;entry_SYSCALL_64_[k];tcp_recvmsg_[k] 3
main 1
"""
SNAPSHOT: Final = """\
     10 ??,os_aio_linux_collect,io_handler_thread,start_thread,clone3
      2 __GI___poll,vio_io_wait,f(std::map<a, b>, int),do_command,start_thread,clone3
Thread 1 (Thread 0x7fdd (LWP 7498) "mysqld"):
#0  0x00007fdc9840064a in ?? () from ./libaio.so.1
#1  0x97bb in io_handler_thread (arg=0x0) at x.cc:3
TID 7499:
#0  0x00007fdc9840064a - /opt/libaio.so.1
#1  0x000000000097bbdf io_handler_thread - /opt/mysqld
"""
_VALUE: Final = re.compile(r"(?<== ).+")
_WORD: Final = re.compile(r"[^\s;,]+")


def change_lines(
    text: str, chance: random.Random, new: tuple[str, ...], part: re.Pattern[str]
) -> str:
    """One to five changes: parts of lines, lines that are gone, doubled, moved or invented."""
    lines = text.split("\n")
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(lines))
        kind = chance.randrange(8)
        found = list(part.finditer(lines[at]))
        if kind < 4 and found:
            where = chance.choice(found)
            lines[at] = (
                f"{lines[at][: where.start()]}{chance.choice(new)}{lines[at][where.end() :]}"
            )
        elif kind == 4 and len(lines) > 1:
            del lines[at]
        elif kind == 5:
            lines[at:at] = [lines[at]] * chance.choice((1, 2, 300))
        elif kind == 6:
            lines.insert(at, chance.choice(LINES if part is _VALUE else new))
        elif kind == 7:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
    made = "\n".join(lines)
    return made[: chance.randrange(len(made) + 1)] if chance.random() < 0.05 else made


GOOD: Final[Mapping[type, tuple[object, ...]]] = {
    str: (
        *("\x1b[2J\r", "a\u202eb", "a/b", "*", "*a" * 12 + "b", "x" * 9000, "é", "unknown", "a\nb"),
        *("handshake", "command", "record_write", "phase"),
        *("wait", "call", "handshake_call", "record"),
        *("SSL_read", "SSL_*", "SSL_do_handshake", "EVP_*"),
        *("_Z*", "main", "phase_open", "base_idle"),
        *("blocked_lock", "server", "client", "tls", "zero"),
        *("read", "[\\d.]+", "(a|b)*", "cipher", "block"),
    ),
    int: (1, 0, -1, 2, 16, 65535, 65536, 10**6, 10**9, 1 << 70),
    float: (1.0, 0.5, 1e-9, 1e6, 1e300, float("inf"), float("nan")),
    bool: (True, False),
    list: ([], ["*"], ["SSL_read"], [{"name": "SSL_*", "hits": 9}], [[]], ["x"] * 2000),
    dict: ({}, {"name": "x"}, {"argument": 5, "type": "int"}, {"returned": "size_t"}),
}  # fmt: skip
"""Values that the syntax of a definition allows in some place."""


def change_values(table: object, chance: random.Random) -> None:
    """Another value of the same type, or a key that is gone, somewhere in nested tables."""
    while isinstance(table, dict | list) and table:
        keys = list(table) if isinstance(table, dict) else list(range(len(table)))
        key = chance.choice(keys)
        inner = table[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.9:
            table = inner
        elif chance.random() < 0.1:
            del table[key]
            return
        else:
            table[key] = chance.choice(GOOD[type(inner)])
            return


def as_toml(value: object) -> str:
    """A value as TOML on one line; tables within are inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value).lower()


class OfTlstax:
    """Commands of tlstax, with the limit that a user would accept."""

    cpu_s = 10.0
    wall_s = 300.0

    def run(self, command: list[str]) -> int:
        """Run one; its exit status."""
        try:
            return main(command)
        except SystemExit as end:  # argparse
            return int(end.code or 0)


class Definitions(OfTlstax):
    """Definition files, and the plan of a process that has libssl."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "definitions"
        self._folder.mkdir(exist_ok=True)
        sources = [*(ROOT / "probes/libraries").glob("*.toml"), ROOT / "tests/testprogs/truth.toml"]
        self._sources = sorted(sources)
        code = "import ssl, sys; print(flush=True); sys.stdin.read()"
        self._target = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._target.stdout is not None
        self._target.stdout.readline()

    def make(self, number: int) -> str:
        """Write the mutant."""
        chance = random.Random(number)
        used = [one for one in self._sources if one.stem in ("openssl3", "mariadb")]
        source = chance.choice(used if chance.random() < 0.6 else self._sources)
        text = source.read_text().replace('id = "', 'id = "fuzz-', 1)
        if chance.random() < 0.7:
            table = tomllib.loads(text)
            for _ in range(chance.randrange(1, 4)):
                change_values(table, chance)
            made = "".join(f"{key} = {as_toml(value)}\n" for key, value in table.items())
        else:
            made = change_lines(text, chance, VALUES, _VALUE)
        (self._folder / "x.toml").write_text(made, encoding="utf-8", errors="surrogateescape")
        return source.name

    def commands(self, number: int, is_short: bool) -> list[list[str]]:
        """The plan, as text and as JSON."""
        plan = ["probes", "plan", str(self._target.pid), "--definitions", str(self._folder)]
        every = [[*plan, "-v"], [*plan, "--json"], [*plan, "--functions", "cipher,digest,kdf"],
                 [*plan, "--client", "--level", "handshake"]]  # fmt: skip
        return [every[number % len(every)]] if is_short else every

    def clear(self) -> None:
        """Nothing is written."""


class Imports(OfTlstax):
    """Texts of perf, folded stacks and snapshots, and perf's own files where perf is here."""

    def __init__(self, folder: Path) -> None:
        self._mutant, self._capture = folder / "mutant", folder / "made.tlstax"
        self._data = folder / "perf.data"
        perf = shutil.which("perf")
        if perf is not None:
            command = [perf, "record", "-q", "-e", "cpu-clock", "-F", "999", "-g"]
            command += ["-o", str(self._data), "--", "true"]
            subprocess.run(command, capture_output=True, check=False)
        self._kind = ""

    def make(self, number: int) -> str:
        """Write the mutant."""
        chance = random.Random(number)
        texts: Mapping[str, str] = {"script": SCRIPT, "folded": FOLDED, "snapshot": SNAPSHOT}
        has_data = self._data.exists() and self._data.stat().st_size
        self._kind = chance.choice((*texts, "data") if has_data else tuple(texts))
        if self._kind == "data":
            made = _damage(self._data.read_bytes(), chance)
        else:
            text = change_lines(texts[self._kind], chance, WORDS, _WORD)
            made = text.encode(errors="surrogateescape")
        self._mutant.write_bytes(made)
        return self._kind

    def commands(self, number: int, is_short: bool) -> list[list[str]]:
        """Import it, and report what came of it."""
        capture = str(self._capture)
        self._capture.unlink(missing_ok=True)
        if self._kind == "snapshot":
            read = ["pmp", "--from", str(self._mutant), "-o", capture]
        else:
            rate = [] if self._kind == "data" else ["--hz", "99"]
            read = ["import", str(self._mutant), *rate, "-o", capture]
        report = ["report", capture]
        return [read] if is_short and number % 2 else [read, report]

    def clear(self) -> None:
        """Remove the capture."""
        self._capture.unlink(missing_ok=True)


def _damage(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, or the end cut off."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 9)):
        end = chance.choice((104, 1024, *[len(made)] * 4))
        made[chance.randrange(min(end, len(made)))] = chance.choice(
            (0, 1, 0x7F, 0xFF, chance.randrange(256))
        )
    return bytes(made[: chance.randrange(len(made))] if chance.random() < 0.2 else made)
