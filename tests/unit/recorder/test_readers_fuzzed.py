# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's readers of plans and unwind tables on some mutants, under the sanitizers.

`make test-recorder-sanitizers` makes a hundred times as many (tests/recorder/test_sanitized.py).
"""

import re
import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.recording.stream.tables_file import process_tables, tables_bytes

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Icollectors/recorder", "-Iprobes/bpf")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PLANS, TABLES, SEED = "2000", "300", "11"


@pytest.fixture(scope="module")
def sanitizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Those options, where programs run with them: the mutants say less without."""
    program = tmp_path_factory.mktemp("sanitizers") / "empty"
    command = ["gcc", *SANITIZERS, "-o", str(program), "-x", "c", "-"]
    done = subprocess.run(command, input=b"int main(void) { return 0; }", check=False)
    # Where addresses are more random than they know, they crash at random.
    runs = not done.returncode and all(
        not subprocess.run([program], check=False).returncode for _ in range(20)
    )
    return SANITIZERS if runs else ()


def built(name: str, sanitizers: tuple[str, ...], folder: Path) -> Path:
    """A fuzzer of tests/recorder, of the sources that the Makefile names."""
    rule = re.search(
        rf"/{name}: \$\(addprefix collectors/recorder/,(.*)\)", (ROOT / "Makefile").read_text()
    )
    assert rule
    sources = [f"collectors/recorder/{part}" for part in rule[1].split()]
    command = ["gcc", *FLAGS, *sanitizers, "-o", str(folder / name), f"tests/recorder/{name}.c"]
    subprocess.run([*command, *sources, "-lz"], check=True, cwd=ROOT)
    return folder / name


def taken(program: Path, seed: Path, count: str) -> int:
    """How many mutants of a file its reader took; it had a reason for refusing each other one."""
    command = [str(program), str(seed), count, SEED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    mutants, found = re.findall(r"(\d+) mutants, (\d+) taken", done.stdout)[0]
    assert mutants == count
    return int(found)


def test_mutants_of_a_plan(sanitizers: tuple[str, ...], tmp_path: Path) -> None:
    program = built("plan_fuzz", sanitizers, tmp_path)
    assert 0 < taken(program, ROOT / "tests/recorder/seed.plan", PLANS) < int(PLANS)


def test_mutants_of_unwind_tables(sanitizers: tuple[str, ...], tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            while not (made := process_tables(process.pid)):  # its code is being mapped
                assert process.poll() is None
        finally:
            process.kill()
    tables = tmp_path / "small.unwind"
    tables.write_bytes(tables_bytes(made.layout, made.words))
    program = built("tables_fuzz", sanitizers, tmp_path)
    assert 0 < taken(program, tables, TABLES) < int(TABLES)
