# SPDX-License-Identifier: GPL-2.0-only
"""The wheel holds everything that the source tree runs with, and works away from it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.__main__ import COMMANDS

NOT_SHIPPED = {"tests", "docs", "build", "dist"}
# What the build makes: ignored by git, and shipped all the same.
BUILT = (
    "probes/bpf/**/*.bpf.o",
    "collectors/recorder/bin/*",
    "analysis/report/html/assets/vendor/*",
)
NOT_DATA = {".gitignore", "vendor.list"}


def package_files(repository: Path) -> Iterator[str]:
    """The files below the packages of pyproject.toml's stages, and those that the build adds."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    listing = subprocess.run(
        [*command, "--exclude-standard"], cwd=repository, capture_output=True, text=True, check=True
    )
    names = {name for name in listing.stdout.split("\0") if (repository / name).is_file()}
    for pattern in BUILT:
        names |= {str(path.relative_to(repository)) for path in repository.glob(pattern)}
    for name in sorted(names):
        top = name.split("/")[0]
        if "/" in name and not top.startswith(".") and top not in NOT_SHIPPED:
            yield name


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, as setuptools leaves its own folders behind."""
    source = tmp_path_factory.mktemp("source")
    names = [*package_files(repository), "__init__.py", "__main__.py", "py.typed"]
    for name in [*names, "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(target), str(source)], check=True)
    (built,) = target.glob("tlstax-*.whl")
    return built


def test_wheel_holds_every_package_file(repository: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {
            name.removeprefix("tlstax/")
            for name in archive.namelist()
            if name.startswith("tlstax/")
        }
    expected = {
        name for name in package_files(repository) if name.rpartition("/")[2] not in NOT_DATA
    }
    assert shipped == expected | {"__init__.py", "__main__.py", "py.typed"}


def test_built_files_are_there(repository: Path) -> None:
    for pattern in BUILT:
        assert list(repository.glob(pattern)), f"run: make install ({pattern} is missing)"


def test_every_package_is_listed(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    folders = {name.rpartition("/")[0] for name in package_files(repository) if name[-3:] == ".py"}
    listed = {name.replace(".", "/") for name in project["tool"]["setuptools"]["packages"]}
    assert listed == {"tlstax", *(f"tlstax/{folder}" for folder in folders)}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; its dependencies come from the running one."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*command, "--no-deps", "--no-index", str(wheel)], check=True)
    # Its .pth files are not read from there, so the editable tlstax stays unseen.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_installed_command_has_help(installed: Path, tmp_path: Path, command: list[str]) -> None:
    done = subprocess.run(
        [str(installed / "bin/tlstax"), *command, "--help"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: tlstax")


def test_installed_package_is_not_the_source(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(installed / "bin/python"), "-c", "import tlstax; print(tlstax.__file__)"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(installed)
