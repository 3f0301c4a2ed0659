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


def test_an_account_is_made_once_and_a_slot_taken_once(repository: Path) -> None:
    """Accounts, slots in use, and whether the other CPU came and has another slot."""
    program = repository / "tests/testprogs/bin/accounts"
    said = subprocess.check_output([program], text=True)
    assert dict(line.split(" ", 1) for line in said.splitlines()) == {
        "one-thread": "1 1 right",
        "two-threads": "2 2 right",
        "two-fresh": "2 2 right",
        "two-recycled": "2 2 right",
    }
