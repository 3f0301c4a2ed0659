# SPDX-License-Identifier: GPL-2.0-only
"""What `make check-stacks` calls agreement with perf: equal shares pass, a lost caller does not."""

import os
from collections import Counter

import pytest

from tlstax.tests.truth.stacks.paths import (
    NOT_DESCRIBED,
    Function,
    Functions,
    Route,
    compare,
    describe,
)
from tlstax.tests.truth.stacks.perf_run import PerfSeen, add_text

SAMPLES = 4000


def path(names: str) -> Route:
    return tuple(Function("server", ord(name)) for name in names)


def test_equal_shares_agree() -> None:
    mine = Counter({path("abc"): SAMPLES // 2, path("abd"): SAMPLES // 2})
    theirs = Counter({path("abc"): 1030, path("abd"): 970})
    compared = compare(mine, theirs)
    assert [each.path for each in compared] == [path(one) for one in ("a", "ab", "abc", "abd")]
    assert all(each.agrees for each in compared)


@pytest.mark.parametrize(("lost", "agrees"), [(0.0, True), (0.01, True), (0.08, False)])
def test_a_caller_that_one_side_loses(lost: float, agrees: bool) -> None:
    """A function that is left out of some stacks moves their shares to another path."""
    without = round(lost * SAMPLES / 2)
    mine = Counter({path("abcd"): SAMPLES // 2 - without, path("abd"): without})
    mine[path("ae")] = SAMPLES // 2
    theirs = Counter({path("abcd"): SAMPLES // 2, path("ae"): SAMPLES // 2})
    compared = compare(mine, theirs)
    assert all(each.agrees for each in compared) == agrees
    wrong = {each.path for each in compared if not each.agrees}
    assert wrong == (set() if agrees else {path("abc"), path("abcd"), path("abd")})


def test_chance_is_shared_by_all_loads() -> None:
    """With many loads one path is off by as much as once in twenty runs of one load."""
    theirs = Counter({path("ab"): SAMPLES // 2, path("ac"): SAMPLES // 2})
    for more, agree in (98, (True, True)), (122, (False, True)), (152, (False, False)):
        mine = Counter({path("ab"): SAMPLES // 2 + more, path("ac"): SAMPLES // 2 - more})
        found = tuple(all(one.agrees for one in compare(mine, theirs, n)) for n in (1, 12))
        assert found == agree, more


def test_rare_paths_are_not_compared() -> None:
    mine = Counter({path("ab"): SAMPLES - 20, path("ac"): 20})
    theirs = Counter({path("ab"): SAMPLES})
    assert [each.path for each in compare(mine, theirs)] == [path("a"), path("ab")]


def test_nothing_to_compare() -> None:
    assert compare(Counter(), Counter({path("a"): 5})) == []


def test_stacks_that_perf_prints() -> None:
    """Kernel frames are left out; those that end elsewhere than threads begin are broken."""
    text = """\tffffffff81000000 ([kernel.kallsyms])
\t         12345 (/usr/lib/no such file.so.3)
\t           abf (/usr/sbin/server)

\t         12345 (/usr/lib/libz.so.1)

\tffffffff81000000 ([kernel.kallsyms])

"""
    seen = PerfSeen()
    add_text(seen, text, {0xAC0}, Functions(os.getpid()))
    assert (seen.samples, seen.whole) == (2, 1)
    assert not seen.routes, "code without call frame information is not compared"
    assert sum(seen.broken.values()) == 1


def test_functions_of_this_process() -> None:
    functions = Functions(os.getpid())
    found = {functions.at_offset("libc", 0x30000 + 16 * place) for place in range(4000)}
    starts = {one.start for one in found} - {NOT_DESCRIBED}
    assert len(starts) > 20
    one = Function("libc", min(starts))
    assert functions.at_offset("libc", one.start) == one  # libc's offsets are its addresses
    assert functions.name(one)
    assert functions.at(0).file == "?"
    (line,) = compare(Counter({(one,): 9}), Counter({(one,): 9}))
    assert "perf 100.0%" in describe(line, (9, 9), functions)
