# SPDX-License-Identifier: GPL-2.0-only
"""Two CPUs that create a key of a map or an account at once: nothing is lost or made twice."""

import re
import subprocess
from pathlib import Path

COUNTED = {"samples", "offcpu", "function_sums", "function_times"}
"""Maps whose values are counts, which any CPU may create."""
UPDATE = re.compile(r"bpf_map_update_elem\(&(\w+), [^;]*?(BPF_\w+)\)")


def test_the_second_adds_to_what_the_first_created(repository: Path) -> None:
    program = repository / "tests/testprogs/bin/keys"
    said = subprocess.check_output([program], text=True)
    assert dict(line.split() for line in said.splitlines()) == {
        "calls": "2",
        "times": "2",
        "losses": "0",
    }


def test_each_counted_map_is_filled_in_that_way(repository: Path) -> None:
    """Create only if absent, then look again."""
    seen = set()
    for path in sorted((repository / "probes/bpf").glob("*.[ch]")):
        text = path.read_text(encoding="utf-8")
        for match in UPDATE.finditer(text):
            name, flag = match.groups()
            if name in COUNTED:
                seen.add(name)
                assert flag == "BPF_NOEXIST", f"{path.name}: {name}"
                behind = text[match.end() : match.end() + 160]
                assert f"bpf_map_lookup_elem(&{name}, &key)" in behind, f"{path.name}: {name}"
    assert seen == COUNTED


def said_of_accounts(repository: Path) -> dict[str, str]:
    """What the program says of each case."""
    program = repository / "tests/testprogs/bin/accounts"
    said = subprocess.check_output([program], text=True)
    return dict(line.split(" ", 1) for line in said.splitlines())


def test_an_account_is_made_once_and_a_slot_taken_once(repository: Path) -> None:
    """Accounts, slots in use, and whether the other CPU came and has another slot."""
    said = said_of_accounts(repository)
    assert said["one-thread"] == "1 1 right"
    for what in "two-threads", "two-fresh", "two-recycled":
        assert said[what] == "2 2 right"


def test_a_thread_that_leaves_its_cpu_while_its_account_is_resumed_sleeps_in_it(
    repository: Path,
) -> None:
    """Its switch is not seen: else all of its sleep would be time on a CPU."""
    said = said_of_accounts(repository)
    assert said["stays"] == "on-cpu busy"
    assert said["leaves"] == "asleep busy"
    assert said["leaves-parked"] == "asleep idle"
