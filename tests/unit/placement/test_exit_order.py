# SPDX-License-Identifier: GPL-2.0-only
"""Which way the end of a function is seen: each in a function that has none of those before it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.placement.return_probes import return_probe_allowed
from tlstax.probes.definitions import load_definitions
from tlstax.tests.unit.placement.examples import Compile, MakeTarget, assembly

DEFINITION = """
id = "own"
kind = "{kind}"
name = "Own"
[detect]
objects = ["program"]
symbols = ["f"]
version = {{ text = "Own ", pattern = 'Own \\\\d+' }}
[[boundary]]
id = "own"
{what}
level = "handshake"
functions = ["f"]
missing = "-"
"""
OFTEN = 'action = "phase"\nphase = "tde"'
RARE = 'action = "phase"\nphase = "connect"'
OPERATION = 'action = "phase"\nphase = "sign"\nonly_in = "handshake"'
EXIT_ONLY = 'action = "base_idle"'
PROGRAM = 'const char version[] = "Own 7"; int f(int); int (*volatile pointer)(int) = f;'
CALLED = 'const char version[] = "Own 7"; int f(int);'
MAIN = "void abort(void); int main(int a, char **b) { if (%s(a) > 2) abort(); return 0; }"
END = ("pop %rbx", "ret")
CALL = ("push %rbx", "call *%rdi")
INSIDE = assembly("f", *CALL, "test %eax,%eax", "je 1f", "1:", *END)
ONE_WAY = assembly("f", *CALL, "test %eax,%eax", "je 1f", "call *%rdi", "nop", "1:", *END)
BARE = assembly("f", *CALL, *END)
TABLE = assembly("f", *CALL, "jmp *(%rdx,%rax,8)", *END)
OTHER = assembly("g", "push %rbx", "call *%rdi", "nop", *END)
TAIL = OTHER + assembly("f", *CALL, "pop %rbx", "jmp g")
BEHIND_TABLE = assembly(
    "g", "push %rbx", "jmp *(%rdx,%rax,8)", "call f", "test %eax,%eax", "je 1f", "1:", *END
)
INDIRECT = assembly("f", *CALL, "pop %rbx", "jmp *%rax")


@pytest.fixture
def exits(
    compile_c: Compile, target_of: MakeTarget, libraries: dict[str, Path], tmp_path: Path
) -> "PlanOf":
    return PlanOf(compile_c, target_of, libraries, tmp_path)


class PlanOf:
    """Plans the boundary of a program that defines `f`."""

    def __init__(
        self, compile_c: Compile, target_of: MakeTarget, libraries: dict[str, Path], folder: Path
    ) -> None:
        self._compile, self._target_of = compile_c, target_of
        self._libraries, self._folder = libraries, folder

    def plan(self, source: str, what: str, kind: str = "server") -> Plan:
        (self._folder / "own.toml").write_text(DEFINITION.format(what=what, kind=kind))
        program = self._compile(source)
        target = self._target_of(program, self._libraries["libssl"], self._libraries["libcrypto"])
        return plan(target, load_definitions(self._folder))

    def of(self, source: str, what: str, kind: str = "server") -> Sequence[Site]:
        return [site for site in self.plan(source, what, kind).sites if site.boundary == "own"]


def ways(sites: Sequence[Site]) -> list[tuple[str, str, int]]:
    """Function, mnemonic and condition of each exit."""
    return [
        (site.function, site.instruction.split()[0], site.condition)
        for site in sites
        if site.event == "exit"
    ]


POINTED = PROGRAM + MAIN % "pointer"
KNOWN = CALLED + MAIN % "f"
E = 4  # the condition code of `je`


@pytest.mark.parametrize(
    ("source", "what", "expected"),
    [
        (POINTED + INSIDE, OFTEN, [("f", "je", -1)]),
        (POINTED + ONE_WAY, OFTEN, [("f", "je", E), ("f", "nop", -1)]),
        (POINTED + TAIL, OFTEN, [("g", "nop", -1)]),
        (KNOWN + BARE, OFTEN, [("main", "jg", -1)]),
        (KNOWN + INDIRECT, OFTEN, [("main", "jg", -1)]),
        (POINTED + BARE, RARE, [("f", "ret", -1)]),
        (POINTED + TABLE, RARE, [("f", "ret", -1)]),
        (KNOWN + BARE + BEHIND_TABLE, OPERATION, [("f", "ret", -1)]),
        (POINTED + BARE, OFTEN, []),
        (POINTED + INDIRECT, RARE, []),
        (POINTED + TAIL, EXIT_ONLY, [("f", "jmp", -1)]),
        (POINTED + BARE, EXIT_ONLY, [("f", "ret", -1)]),
    ],
    ids=["inside", "direction", "jump into another", "caller", "caller of an indirect jump", "ret",
         "ret behind a table", "ret, a caller behind a table", "next boundary",
         "indirect jump", "jump out", "ret, exit only"],
)  # fmt: skip
def test_the_first_way_that_serves_is_taken(
    exits: PlanOf, source: str, what: str, expected: list[tuple[str, str, int]]
) -> None:
    sites = exits.of(source, what)
    assert {site.kind for site in sites} == {"uprobe"}
    assert ways(sites) == expected
    enters = [site for site in sites if site.event == "enter"]
    assert [site.unseen_exits for site in enters] == ([not expected] if enters else [])


def test_a_way_that_ends_with_a_throw_is_no_exit(exits: PlanOf) -> None:
    throwing = assembly("f", *CALL, "test %eax,%eax", "je 1f", "call *%rsi", "jmp 2f",
                        "1: call abort", "2:", *END)  # fmt: skip
    assert ways(exits.of(POINTED + throwing, OFTEN)) == [("f", "jmp", -1)]


def test_an_exit_alone_is_missing_where_nothing_shows_it(exits: PlanOf) -> None:
    (missing,) = [
        m for m in exits.plan(POINTED + INDIRECT, EXIT_ONLY).missing if m.boundary == "own"
    ]
    assert "it leaves by an indirect jump" in missing.why


def test_only_a_leaf_of_a_tls_library_has_a_return_probe_and_says_so(exits: PlanOf) -> None:
    leaf = f"{RARE}\nleaf = true"
    assert [site.kind for site in exits.of(POINTED + INDIRECT, leaf)] == ["uprobe"]
    sites = exits.of(POINTED + INDIRECT, leaf, "tls")
    assert [(site.event, site.kind) for site in sites] == [
        ("enter", "uprobe"),
        ("exit", "uretprobe"),
    ]
    assert sites[1].reason.startswith("last resort")
    # What has another way is never given one.
    assert {site.kind for site in exits.of(POINTED + BARE, leaf, "tls")} == {"uprobe"}


@pytest.mark.parametrize(
    ("kind", "leaf", "accepted", "allowed"),
    [
        ("tls", True, False, True),
        ("tls", False, False, False),
        ("server", True, False, False),
        ("client", True, False, False),
        ("server", False, True, True),
    ],
)
def test_where_a_return_probe_may_be(kind: str, leaf: bool, accepted: bool, allowed: bool) -> None:
    assert return_probe_allowed(kind, leaf, accepted) is allowed
