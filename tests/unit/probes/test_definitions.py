# SPDX-License-Identifier: GPL-2.0-only
"""Definition files: the bundled ones, and what is refused."""

import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import vocabulary
from tlstax.probes.definitions import load_definitions, parse_definition
from tlstax.probes.model import ACTIONS, DETAIL_PHASES, PHASES, ROLES, WAIT_STATES, Function, Level
from tlstax.tests.refused_definitions import require_refused
from tlstax.workloads.matrix.recipe_file import load_recipe

GOOD = """
id = "own"
kind = "server"
name = "Own server"
[detect]
objects = ["own*"]
symbols = ["own_main"]
version = { text = "Own", pattern = 'Own (\\d+)' }
[[boundary]]
id = "work"
action = "phase"
phase = "command"
level = "command"
functions = ["_Z3runP1A*", { name = "run_twice", hits = 2 }]
missing = "Work is not seen."
"""


def test_phases_are_those_of_the_capture() -> None:
    assert tuple(vocabulary.PHASES) == PHASES
    assert vocabulary.DETAIL_PHASES == DETAIL_PHASES


def test_roles_and_states_are_those_of_the_capture() -> None:
    assert tuple(vocabulary.ROLES) == ROLES
    assert set(WAIT_STATES) <= set(vocabulary.STATES)


def test_bundled_definitions_are_valid_and_complete() -> None:
    definitions = {entry.id: entry for entry in load_definitions()}
    assert {"openssl3", "yassl", "mariadb", "mysql"} <= set(definitions)
    used = {b.action for entry in definitions.values() for b in entry.boundaries}
    # No bundled server reads its commands in a way that the kernel could not tell.
    assert used | {"await_command"} == set(ACTIONS)
    for entry in definitions.values():
        for boundary in entry.boundaries:
            assert boundary.missing.endswith(".")
            assert boundary.functions


def test_a_definition_is_read_as_written() -> None:
    own = parse_definition(GOOD.encode(), "own.toml")
    (boundary,) = own.boundaries
    assert boundary.events == ("enter", "exit")
    assert boundary.level is Level.COMMAND
    assert boundary.functions[1] == Function("run_twice", 2.0)
    assert own.detect.version_pattern.fullmatch("Own 5")
    assert own.detect.version_text == ("Own",)
    assert not boundary.blocking


def test_a_version_may_be_looked_for_by_several_texts_and_a_function_may_block() -> None:
    text = GOOD.replace('text = "Own"', 'text = ["Own 9", "Own 8"]')
    text = text.replace("hits = 2 }]", "hits = 2 }]\nblocking = true")
    own = parse_definition(text.encode(), "own.toml")
    assert own.detect.version_text == ("Own 9", "Own 8")
    assert own.boundaries[0].blocking


def test_the_two_servers_are_told_apart_by_functions_of_one_place() -> None:
    by_id = {entry.id: entry for entry in load_definitions()}
    assert "net_real_write" in by_id["mariadb"].detect.symbols
    assert "*net_write_packet*" in by_id["mysql"].detect.symbols


def test_patterns_match_the_tail_of_a_mangled_name_only() -> None:
    function = Function("_Z10do_commandP3THD*")
    assert function.matches("_Z10do_commandP3THD")
    assert function.matches("_Z10do_commandP3THDb")
    assert not function.matches("_Z10do_commandP3THDb.cold")
    assert not function.matches("x_Z10do_commandP3THDb")


def test_a_directory_adds_definitions(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(GOOD)
    assert "own" in {entry.id for entry in load_definitions(tmp_path)}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('kind = "server"', 'kind = "proxy"', "not one of tls, server, client"),
        ('id = "own"', "", "'id' is missing"),
        ('action = "phase"', 'action = "fase"', "not one of phase"),
        ('phase = "command"', 'phase = "lunch"', "'lunch'"),
        ('phase = "command"', "", "'phase' is missing"),
        ('level = "command"', 'level = "all"', "not one of sample"),
        ("hits = 2", "hits = 0", "above 0"),
        ("hits = 2", "hits = true", "above 0"),
        ('level = "command"', 'level = "command"\nblocking = 1', "must be true or false"),
        ('"_Z3runP1A*"', '"run; rm"', "not a function name"),
        ('missing = "Work is not seen."', 'missing = " "', "must be a text"),
        ("'Own (\\d+)'", "'Own ('", "not a regular expression"),
        ('id = "work"', 'id = "work"\nprice = 3', "unknown key: price"),
        ('["own_main"]', "[]", "not empty"),
        ("[detect]", "[detect", "not TOML"),
    ],
)
def test_what_is_refused(before: str, after: str, reason: str) -> None:
    require_refused(GOOD, before, after, reason)


def test_the_documented_example_is_valid(repository: Path) -> None:
    text = (repository / "docs/definitions.md").read_text()
    example = text.partition("```toml\n")[2].partition("```")[0]
    assert parse_definition(example.encode(), "the example").id == "myserver"
    actions = text.partition("| action |")[2].partition("\n\n")[0]
    assert all(f"`{action}`" in actions for action in ACTIONS)


def test_an_id_may_occur_once(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "b.toml").write_text(GOOD)
    with pytest.raises(TlstaxError, match="two definition files"):
        load_definitions(tmp_path)
    twice = GOOD + GOOD[GOOD.index("[[boundary]]") :]
    with pytest.raises(TlstaxError, match="occurs twice"):
        parse_definition(twice.encode(), "own.toml")


def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match=r"no \.toml file"):
        load_definitions(tmp_path)


def slow_expression(pattern: str) -> "re.Pattern[str]":
    """What a name pattern means, plainly."""
    return re.compile(re.escape(pattern).replace(r"\*", r"\w*"), re.ASCII)


@settings(max_examples=300)
@given(st.text("ab*._", max_size=8), st.text("ab._", max_size=12))
def test_patterns_mean_what_they_say(pattern: str, name: str) -> None:
    assert Function(pattern).matches(name) == bool(slow_expression(pattern).fullmatch(name))


@pytest.mark.parametrize("pattern", ["*".join("a" * 13), "*a" * 12 + "b", "a" + "*" * 12 + "b"])
def test_many_stars_take_no_time(pattern: str) -> None:
    start_s = time.process_time()
    assert not Function(pattern).matches("a" * 4000 + ".")
    assert time.process_time() - start_s < 1


def hostile_file(place: Path, kind: str) -> None:
    """What may lie in a directory of definitions instead of one."""
    if kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "zero":
        place.symlink_to("/dev/zero")
    elif kind == "large":
        place.write_bytes(b"# " + b"x" * (1 << 20))
    elif kind == "brackets":
        place.write_text(f"id = {'[' * 3000}")
    elif kind == "digits":
        place.write_text(f"id = {'1' * 5000}")
    elif kind == "bytes":
        place.write_bytes(b"id = '\xff'")
    elif kind == "dangling":
        place.symlink_to("nowhere")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("directory", "not a regular file"),
        ("pipe", "not a regular file"),
        ("zero", "not a regular file"),
        ("large", "more than 1 MiB"),
        ("brackets", "nested too deeply"),
        ("digits", "not TOML"),
        ("bytes", "not TOML"),
        ("dangling", "no such file"),
    ],
)
def test_files_that_are_no_definitions_are_refused(kind: str, why: str, tmp_path: Path) -> None:
    hostile_file(tmp_path / "x.toml", kind)
    with pytest.raises(TlstaxError, match=why) as caught:
        load_definitions(tmp_path)
    assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(TlstaxError, match=why):
        load_recipe(tmp_path / "x.toml")


@pytest.mark.parametrize("number", ["inf", "nan", "1e300", "-1", "0"])
def test_numbers_that_count_nothing_are_refused(number: str) -> None:
    with pytest.raises(TlstaxError, match="number above 0"):
        parse_definition(GOOD.replace("hits = 2", f"hits = {number}").encode(), "x")
