# SPDX-License-Identifier: GPL-2.0-only
"""The rooms of the source tree: which module belongs where, and who may import whom.

A stage imports the stages that MAY_IMPORT names, a room only rooms that ROOMS names before it. Both
hold for imports inside functions and under TYPE_CHECKING, too, and the whole import graph has no
circle: a circle that a local import hides is still a circle to whoever reads the code.
"""

import ast
import itertools
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

# Each stage, and the stages (or rooms of theirs) that it may import.
MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    "certs": frozenset(),
    "workloads": frozenset({"certs", "collectors.capture"}),
    "probes": frozenset({"certs", "workloads"}),
    "collectors": frozenset({"certs", "workloads", "probes"}),
    "analysis": frozenset({"collectors.capture"}),
}
# The rooms in the order in which data flows. A module at the top of analysis/ is its own room.
ROOMS: Final = (
    "collectors.capture",
    "certs",
    "workloads",
    "probes",
    "collectors.binary",
    "collectors.host",
    "collectors.process",
    "collectors.unwinding",
    "collectors.placement",
    "collectors.preflight",
    "collectors.recording.programs",
    "collectors.recording.stream",
    "collectors.recording",
    "collectors.recording.by_recorder",
    "collectors.remote",
    "collectors.sources",
    "collectors.watching",
    "collectors.microbench",
    "collectors.commands",
    "analysis.model",
    "analysis.statistics",
    "analysis.quantities",
    "analysis.rows",
    "analysis.classify",
    "analysis.compare",
    "analysis.findings",
    "analysis.whatif",
    "analysis.experiment",
    "analysis.fleet",
    "analysis.document",
    "analysis.report.layout",
    "analysis.report.texts",
    "analysis.report.output",
    "analysis.report.export",
    "analysis.report.terminal",
    "analysis.report.html",
    "analysis.report.markdown",
    "analysis.report.live",
    "analysis.report.commands",
)
STAGE_FOLDERS: Final = tuple(MAY_IMPORT)
MODULES_MAX = 20
LINES_MAX = 350
# The schema is one list of tables.
LONG_FILES = {"collectors/capture/schema.py"}


def source_files(repository: Path) -> list[Path]:
    """The Python files of the stages, as git knows them (new ones, too)."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    listing = subprocess.run(
        [*command, "--exclude-standard", "--", *(f"{stage}/**.py" for stage in STAGE_FOLDERS)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listing.stdout.split("\0") if name]
    return [repository / name for name in names if (repository / name).is_file()]


def module_of(path: Path, repository: Path) -> str:
    """The module's name without `tlstax.`: collectors.host.clock."""
    parts = path.relative_to(repository).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, known: frozenset[str]) -> Iterator[str]:
    """The modules of `known` that a source imports, in functions and under conditions, too.

    A text that is a module's name counts as well: `importlib.import_module` is given one.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [
                name if name.removeprefix("tlstax.") in known else node.module for name in inside
            ]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value.startswith("tlstax.") else []
        else:
            continue
        for name in names:
            if name == "tlstax.__main__" or name.removeprefix("tlstax.") in known:
                yield name.removeprefix("tlstax.")


def innermost(module: str, places: Iterable[str]) -> str | None:
    """The longest of `places` that the module lies in."""
    fitting = [place for place in places if f"{module}.".startswith(f"{place}.")]
    return max(fitting, key=len, default=None)


def may_import(module: str, other: str) -> bool:
    """Whether stages and rooms allow it."""
    stage, other_stage = innermost(module, MAY_IMPORT), innermost(other, MAY_IMPORT)
    if stage is None or other_stage is None:
        return False
    room, other_room = innermost(module, ROOMS), innermost(other, ROOMS)
    if room is None or other_room is None:
        return False
    if stage != other_stage and innermost(other, MAY_IMPORT[stage]) is None:
        return False
    return room == other_room or ROOMS.index(other_room) < ROOMS.index(room)


def wrong_imports(sources: Mapping[str, str]) -> list[str]:
    """One line for each import that runs backwards."""
    known = frozenset(sources)
    return sorted(
        f"{module} may not import {other}"
        for module, source in sources.items()
        for other in set(imported(source, known))
        if not may_import(module, other)
    )


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """The groups of modules that import each other, whether in functions or not."""
    known = frozenset(sources)
    graph = {m: set(imported(source, known)) & known - {m} for m, source in sources.items()}
    # A module that imports nothing of the rest, or that nothing imports, lies on no circle.
    while True:
        wanted = set(itertools.chain.from_iterable(graph.values()))
        leaves = {module for module, others in graph.items() if not others or module not in wanted}
        if not leaves:
            break
        graph = {m: others - leaves for m, others in graph.items() if m not in leaves}
    return [sorted(graph)] if graph else []


@pytest.fixture(scope="module")
def sources(repository: Path) -> dict[str, str]:
    return {module_of(path, repository): path.read_text() for path in source_files(repository)}


def test_every_module_is_in_a_room(sources: dict[str, str], repository: Path) -> None:
    packages = {module_of(p, repository) for p in source_files(repository) if p.stem == "__init__"}
    assert [m for m in sources if m not in packages and innermost(m, ROOMS) is None] == []
    assert [room for room in ROOMS if not any(innermost(m, [room]) for m in sources)] == []


def test_rooms_import_only_rooms_before_them(sources: dict[str, str]) -> None:
    assert wrong_imports(sources) == []


def test_import_graph_has_no_circle(sources: dict[str, str]) -> None:
    assert circles(sources) == []


@pytest.mark.parametrize(
    "planted",
    [
        "from tlstax.collectors.recording import recorder\n",
        "def plan():\n    from tlstax.collectors.recording.by_recorder.recorder import Recorder\n",
        "if False:\n    from tlstax.collectors.recording.by_recorder.recorder import Recorder\n",
        "from tlstax.analysis.rows import tables\n",
        'MODULE = "tlstax.collectors.recording.by_recorder.recorder"\n',
        "def late():\n    from tlstax.__main__ import main\n",
    ],
)
def test_a_planted_import_is_seen(sources: dict[str, str], planted: str) -> None:
    module = "collectors.placement.model"
    changed = {**sources, module: sources[module] + planted}
    assert [line for line in wrong_imports(changed) if line.startswith(module)]


@pytest.mark.parametrize("stage", ["certs.generate", "workloads.tls", "probes.definitions"])
def test_the_capture_imports_nothing_of_other_stages(sources: dict[str, str], stage: str) -> None:
    module = "collectors.capture.writer"
    planted = f"import tlstax.{stage}\n"
    changed = {**sources, module: sources[module] + planted}
    assert wrong_imports(changed) == [f"{module} may not import {stage}"]


def test_a_planted_circle_is_seen(sources: dict[str, str]) -> None:
    first, second = "collectors.host.probe_costs.prices", "collectors.host.probe_costs.costs"
    assert f"from tlstax.{first} import" in sources[second]
    hidden = f"def late():\n    from tlstax.{second} import load\n"
    (found,) = circles({**sources, first: sources[first] + hidden})
    assert {first, second} <= set(found)


def test_rooms_say_what_they_are_for(repository: Path) -> None:
    for path in source_files(repository):
        if path.stem == "__init__":
            sentence = ast.get_docstring(ast.parse(path.read_text()))
            assert sentence, f"{path.relative_to(repository)} has no docstring"
            assert sentence.splitlines()[0].endswith("."), path


def listed(repository: Path, *patterns: str) -> list[Path]:
    """The files of git's index that fit."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--", *patterns],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in listing.stdout.split("\0") if (repository / name).is_file()]


def test_no_file_is_long(repository: Path) -> None:
    lines = {
        str(path): len((repository / path).read_text().splitlines())
        for path in listed(repository, "*.py", "*.c", "*.h", "*.bt")
    }
    assert {name for name, count in lines.items() if count > LINES_MAX} == LONG_FILES


def test_no_folder_is_crowded(repository: Path) -> None:
    counts: dict[str, int] = {}
    for path in listed(repository, "*.py"):
        folder = str(path.parent)
        counts[folder] = counts.get(folder, 0) + 1
    assert {folder: count for folder, count in counts.items() if count > MODULES_MAX} == {}
