# SPDX-License-Identifier: GPL-2.0-only
"""Finding a process by its unit, container or pod."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.process.control_groups import Group
from tlstax.collectors.process.find_process import find_in_group, pids_in_group

ID = "3c4f" * 16
OTHER = "99ab" * 16
UID = "2f1e0c7a-55aa-4b1d-9d2e-0123456789ab"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
PATHS = {  # as these programs make them
    "docker": f"0::/system.slice/docker-{ID}.scope",
    "docker without systemd": f"4:memory:/docker/{ID}\n0::/docker/{ID}",
    "podman": f"0::/machine.slice/libpod-{ID}.scope/container",
    "containerd": f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope",
    "cri-o": f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{ID}.scope",
    "cgroupfs": f"11:cpu,cpuacct:/kubepods/besteffort/pod{UID}/{ID}",
    "containerd below its service": f"0::/containerd.service/{SLICE}:cri-containerd:{ID}",
    "lxc": "0::/lxc.payload.db1/system.slice/mariadb.service",
    "nspawn": "0::/machine.slice/machine-db1.scope/payload",
    "nspawn with a hyphen": r"0::/machine.slice/machine-my\x2ddb.scope/payload",
    "nspawn as a service": r"0::/machine.slice/systemd-nspawn@my\x2ddb.service/payload",
    "unit": "12:pids:/system.slice/mariadb.service\n1:name=systemd:/system.slice/mariadb.service",
    "template": "0::/system.slice/system-mariadb.slice/mariadb@one.service",
    "monitor": f"0::/machine.slice/libpod-conmon-{ID}.scope",
    "shell": "0::/user.slice/user-0.slice/session-3.scope",
}
IN_CONTAINERS = {"docker", "docker without systemd", "podman", "containerd", "cri-o", "cgroupfs"}
IN_CONTAINERS |= {"containerd below its service"}


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (Group(container=ID), IN_CONTAINERS),
        (Group(container=ID[:12].upper()), IN_CONTAINERS),
        (Group(container=ID[:4]), set()),  # too short to mean one
        (Group(container=OTHER), set()),
        (Group(container="db1"), {"lxc", "nspawn"}),
        (Group(container="my-db"), {"nspawn with a hyphen", "nspawn as a service"}),
        (Group(container="db"), set()),
        (Group(pod=UID), {"containerd", "cri-o", "cgroupfs", "containerd below its service"}),
        (Group(pod=UID[:8]), {"containerd", "cri-o", "cgroupfs", "containerd below its service"}),
        (Group(pod=UID[:4]), set()),
        (Group(pod=ID[:32]), set()),
        (Group(unit="mariadb"), {"lxc", "unit"}),
        (Group(unit="mariadb.service"), {"lxc", "unit"}),
        (Group(unit="mariadb.scope"), set()),
        (Group(unit="maria"), set()),
        (Group(unit="mariadb@one"), {"template"}),
        (Group(unit="mariadb", container="db1"), {"lxc"}),
        (Group(), set(PATHS)),
    ],
)
def test_paths(group: Group, expected: set[str]) -> None:
    assert {name for name, text in PATHS.items() if group.holds(text)} == expected
    assert all(group.word.lower() in PATHS[name].lower() for name in expected)


@pytest.mark.parametrize(
    ("group", "word"),
    [
        (Group(unit="db.service"), "db"),
        (Group(unit="mariadb@one"), "mariadb"),
        (Group(container="my-db1"), "db1"),
        (Group(container=ID), ID),
        (Group(pod=UID), UID.rpartition("-")[2]),
        (Group(unit="-"), ""),
        (Group(), ""),
    ],
)
def test_what_another_host_is_asked_for(group: Group, word: str) -> None:
    """Never what each service has in its name."""
    assert group.word == word


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A pod with a server, a helper and pause; a kernel thread; a server outside."""
    pod = PATHS["containerd"]
    for pid, comm, command, cgroup in (
        (2, "kthreadd", "", "0::/"),
        (10, "pause", "/pause\0", pod),
        (11, "mysqld", "/usr/sbin/mysqld\0--port=1\0--require\0--password=secret\0", pod),
        (12, "exporter", "/bin/exporter\0", pod.replace(ID, OTHER)),
        (13, "mysqld", "/usr/sbin/mysqld\0", PATHS["unit"]),
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "cmdline").write_text(command)
        (folder / "cgroup").write_text(f"{cgroup}\n")
    (tmp_path / "1").mkdir()
    return tmp_path


def test_one_process(proc: Path) -> None:
    assert find_in_group(Group(container=ID[:12]), "", proc) == 11
    assert find_in_group(Group(unit="mariadb"), "", proc) == 13
    assert find_in_group(Group(pod=UID), "mysqld", proc) == 11
    assert pids_in_group(Group(pod=UID), "mysqld", proc) == [11]
    assert pids_in_group(Group(), "mysqld", proc) == [11, 13]
    assert pids_in_group(Group(unit="mariadb"), "nobody", proc) == []


@pytest.mark.parametrize(
    ("group", "name", "what", "why"),
    [
        (Group(pod=UID), "", "2 processes belong to pod", r"11 \(.*12 \("),
        (Group(pod=OTHER[:32]), "", "No process belongs to pod", "in such a control group"),
        (Group(container=ID[:4]), "", "belongs to container 3c4f", "an id needs at least 6 digits"),
        (Group(container=ID[:4]), "mysqld", "is called mysqld", "an id needs at least 6 digits"),
        (Group(container="x" * 4), "", "belongs to container xxxx", r"such a control group\."),
        (Group(container=OTHER), "x", "is called x", r"name matches\."),
        (Group(unit="mariadb"), "exporter", "of unit mariadb is called", "called exporter is in"),
        (Group(unit="mariadb"), "nobody", "of unit mariadb is called nobody", "no process name"),
        (Group(), "mysqld", "2 processes are called mysqld", "11.*13"),
    ],
)
def test_none_or_several(proc: Path, group: Group, name: str, what: str, why: str) -> None:
    with pytest.raises(TlstaxError, match=why) as caught:
        find_in_group(group, name, proc)
    assert what in caught.value.what
    assert caught.value.exit_code == ExitCode.TARGET


def test_of_a_command_line_only_what_tells_servers_apart(proc: Path) -> None:
    """What is said of several goes to terminals and logs."""
    titled = proc / "13" / "cmdline"
    titled.write_text("mysqld: user with secret as password\0")
    with pytest.raises(TlstaxError) as caught:
        find_in_group(Group(), "mysqld", proc)
    assert "11 (/usr/sbin/mysqld --port=1, in" in caught.value.why
    said = caught.value.why
    for command in (
        "/opt/mysqld --password=secret",
        "/opt/mysqld\t--password=secret",
        "/opt/mysqld\0--port=7 --password=secret\0--socket\0/run/a\0secret\0",
    ):
        titled.write_text(command)
        with pytest.raises(TlstaxError) as caught:
            find_in_group(Group(), "mysqld", proc)
        said += caught.value.why
    assert "/opt/mysqld --port=7 --socket /run/a, in" in said
    assert "secret" not in said


@pytest.mark.parametrize("command", ["attach -o x", "probes plan"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "no process was given"),
        ("1 --unit mariadb", "a pid and unit mariadb were given"),
        ("--container 000000", "No process belongs to container 000000"),
        ("--pod 2f1e", "pod 2f1e is too short: a uid needs at least 8 digits"),
        ("--pod pod2f1e", "pod pod2f1e is too short: a uid needs at least 8 digits"),
    ],
)
def test_options(command: str, words: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), *words.split()]) in (ExitCode.USAGE, ExitCode.TARGET)
    (line,) = capfd.readouterr().err.splitlines()
    assert says in line
