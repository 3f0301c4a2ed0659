# SPDX-License-Identifier: GPL-2.0-only
"""Servers from another Debian suite than the host's, unpacked to a root directory of their own.

apt resolves and downloads from the host's own mirror, with a state of its own below the directory
that is built, and trusts what is signed with a key of Debian's keyring; dpkg-deb unpacks. No
maintainer script is run, so that nothing of a package becomes a service, and nothing is mounted.

A suite may be a snapshot whose Valid-Until has passed: signatures are checked, that date is not.
"""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers.catalogue import Source

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# What the scripts of a server package take for granted; base-files comes first, because it says
# that /lib is /usr/lib.
ESSENTIAL = ("base-files", "coreutils", "dash", "grep", "hostname", "sed")
PACKAGES_FILE = "tlstax-packages.txt"  # in the root: "package version" of all that was unpacked
DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}
FETCH_PATIENCE_S = 900.0
BYTES_PER_MB = 1_000_000

Say = Callable[[str], None]


def build(source: Source, directory: Path, say: Say) -> Path:
    """Make the root below `directory`, which is the caller's to throw away; the root's path.

    Raises TlstaxError: HOST where this host is no Debian or we are not root, IO when apt fails.
    """
    _require_host(source)
    state, root = directory / "apt", directory / "root"
    for part in ("lists/partial", "archives/partial"):
        (state / part).mkdir(parents=True)
    (state / "status").touch()
    mirror = host_mirror(source)
    line = f"deb [signed-by={KEYRING}] {mirror} {source.suite} main\n"
    (state / "sources.list").write_text(line, encoding="ascii")
    say(f"reading the package lists of Debian {source.suite}")
    _apt(source, state, ["update"])
    install = ["install", "-y", "--no-install-recommends"]
    packages = [*ESSENTIAL, source.package, *source.needs]
    wanted = re.findall(
        r"^'\S+' \S+ (\d+)", _apt(source, state, [*install, "--print-uris", *packages]), re.M
    )
    size_mb = sum(map(int, wanted)) / BYTES_PER_MB
    say(f"fetching {len(wanted)} packages, {size_mb:.0f} MB")
    _apt(source, state, [*install, "--download-only", *packages])
    archives = sorted((state / "archives").glob("*.deb"), key=_base_files_first)
    say(f"unpacking {len(archives)} packages")
    root.mkdir()
    versions = [_unpack(source, archive, root) for archive in archives]
    (root / PACKAGES_FILE).write_text("".join(versions), encoding="ascii")
    _furnish(root)
    return root


def package_version(root: Path, package: str) -> str:
    """The version of a package that was unpacked to `root`; "" if it was not."""
    try:
        lines = (root / PACKAGES_FILE).read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    return dict(line.split(maxsplit=1) for line in lines).get(package, "")


def host_mirror(source: Source) -> str:
    """Where this host gets Debian from, by apt's own account."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI) $(LABEL)",
        "Created-By: Packages",
    ]
    lines = _run(source, command).splitlines()
    # Without lists, on a host that never ran `apt-get update`, apt knows no labels.
    plain = [line.split()[0] for line in lines if line.endswith((" Debian", " $(LABEL)"))]
    if not plain:
        raise _failed(source, "apt on this host has no source of Debian packages")
    return plain[0]


def _require_host(source: Source) -> None:
    if os.geteuid() != 0:
        raise TlstaxError(
            f"cannot install {source.package} of Debian {source.suite}",
            "it is started by chroot, which needs root",
            "Run the same command as root",
            ExitCode.HOST,
        )
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise _lacking(source, needed, "Run it on Debian")
    if not KEYRING.is_file():
        raise _lacking(source, str(KEYRING), "On Debian: apt-get install debian-archive-keyring")


def _apt(source: Source, state: Path, arguments: Sequence[str]) -> str:
    """apt-get with a state of its own; pins and hold of the host do not concern it."""
    settings = {
        "APT::Sandbox::User": "root",
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::Etc::Preferences": "-",
        "Dir::Etc::PreferencesParts": "-",
        "Dir::State::Lists": state / "lists",
        "Dir::State::Status": state / "status",
        "Dir::State::extended_states": state / "extended_states",
        "Dir::Cache": state,
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    options = [f"-o{key}={value}" for key, value in settings.items()]
    return _run(source, ["apt-get", "-q", *options, *arguments])


def _base_files_first(archive: Path) -> tuple[bool, str]:
    return (not archive.name.startswith("base-files_"), archive.name)


def _unpack(source: Source, archive: Path, root: Path) -> str:
    """Unpack one package and remove its archive; its line for PACKAGES_FILE."""
    _run(source, ["dpkg-deb", "-x", str(archive), str(root)])
    show = ["dpkg-deb", "-W", "--showformat=${Package} ${Version}\\n", str(archive)]
    line = _run(source, show)
    archive.unlink()
    return line


def _furnish(root: Path) -> None:
    """What maintainer scripts would have made and a server asks for."""
    for name, numbers in DEVICES.items():
        device = root / "dev" / name
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        device.chmod(0o666)
    (root / "tmp").chmod(0o1777)
    root.chmod(0o755)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="ascii")


def _run(source: Source, command: Sequence[str]) -> str:
    """Run a program to its end; what it wrote to standard output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=FETCH_PATIENCE_S,
            check=False,
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
    except subprocess.TimeoutExpired:
        why = f"{command[0]} had not ended after {FETCH_PATIENCE_S:.0f} s"
        raise _failed(source, why) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        telling = [line for line in said if line.startswith("E:")] or said or ["nothing"]
        raise _failed(source, f"{command[0]} failed and said: {telling[-1][:300]}")
    return done.stdout.decode(errors="replace")


def _failed(source: Source, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot install {source.package} of Debian {source.suite}",
        why,
        "Check the network and the free space, then run it again; nothing was left behind",
        ExitCode.IO,
    )


def _lacking(source: Source, what: str, do: str) -> TlstaxError:
    return TlstaxError(
        f"cannot install {source.package} of Debian {source.suite}",
        f"this host has no {what}",
        do,
        ExitCode.HOST,
    )
