# SPDX-License-Identifier: GPL-2.0-only
"""What may stand in a tracked file: names, paths, licences, headers, links."""

import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import PASSED

PROBE_LABELS = ["Question", "Emits", "Attaches", "Needs", "Blind to", "Example"]
# Spelled in halves, so that this file passes its own test.
PRIVATE_PATHS = re.compile(r"(?<![\w.])/(?:work|ro" + r"ot|home)/\w")
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(".".join(host))
        for host in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("deb", "debian", "org"),
            ("snapshot", "debian", "org"),
            ("repo1", "maven", "org"),
            ("maven", "apache", "org"),
            ("crates", "io"),
            ("proxy", "golang", "org"),
        )
    )
)


def tracked(repository: Path) -> Iterator[Path]:
    """The files in git's index, and the new ones that it does not ignore."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    listing = subprocess.run(
        [*command, "--exclude-standard"], cwd=repository, capture_output=True, text=True, check=True
    )
    for name in listing.stdout.split("\0"):
        if name and (repository / name).is_file():
            yield repository / name


def test_root_holds_two_modules(repository: Path) -> None:
    assert sorted(path.name for path in repository.glob("*.py")) == ["__init__.py", "__main__.py"]
    assert len((repository / "__main__.py").read_text().splitlines()) <= 100


@pytest.mark.parametrize("command", PASSED)
def test_what_a_command_is_passed_exists(command: str) -> None:
    for place in PASSED[command].values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(f"tlstax.{module}"), name))


def test_no_package_among_the_tests(repository: Path) -> None:
    assert list((repository / "tests").rglob("__init__.py")) == []


def test_files_name_no_private_path_and_no_registry(repository: Path) -> None:
    wrong = []
    for path in tracked(repository):
        content = path.read_bytes()
        if b"\0" in content[:8192]:
            continue
        for number, line in enumerate(content.decode().splitlines(), 1):
            if PRIVATE_PATHS.search(line) or REGISTRY_HOSTS.search(line):
                wrong.append(f"{path.relative_to(repository)}:{number}: {line.strip()[:80]}")
    assert wrong == []


def test_sources_carry_their_licence(repository: Path) -> None:
    suffixes = {".py", ".c", ".h", ".bt", ".lua", ".sh"}
    assert [
        str(path.relative_to(repository))
        for path in tracked(repository)
        if path.suffix in suffixes
        and path.stat().st_size > 0
        and "SPDX-License-Identifier: GPL-2.0-only" not in path.read_text()[:200]
    ] == []


def probe_programs() -> list[Path]:
    probes = Path(__file__).resolve().parents[3] / "probes"
    return sorted([*probes.glob("bpf/*.bpf.c"), *probes.glob("*.bt")])


@pytest.mark.parametrize("program", probe_programs(), ids=lambda path: path.name)
def test_probe_header_is_a_manual(program: Path) -> None:
    text = program.read_text()
    header = text[: text.index("*/")]
    stem = program.name.partition(".")[0]
    assert re.search(rf"^ \* {stem} - \S.*\.$", header, re.MULTILINE), "name - one line."
    labels = re.findall(r"^ \* ([A-Z][a-z]+(?: [a-z]+)?): \S", header, re.MULTILINE)
    assert labels == PROBE_LABELS


def test_exit_codes_are_documented(repository: Path) -> None:
    page = (repository / "docs/exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [(str(int(code)), code.name) for code in ExitCode]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere(repository: Path) -> None:
    broken = []
    for page in tracked(repository):
        if page.suffix != ".md":
            continue
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(repository)}: {link}")
    assert broken == []


def test_pages_name_only_targets_that_exist(repository: Path) -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (repository / "Makefile").read_text(), re.MULTILINE)
    )
    named = set()
    for page in tracked(repository):
        if page.suffix == ".md":
            named |= set(re.findall(r"`make ([a-z0-9-]+)`", page.read_text()))
    assert named - targets == set()
