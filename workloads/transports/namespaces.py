# SPDX-License-Identifier: GPL-2.0-only
"""Network namespaces of an experiment, and what `ip` tells of them."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.resources import Resources
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program


def scratch(resources: Resources, prefix: str) -> Path:
    """A directory for one transport's files, mode 0700; it goes with the resources."""
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=resources.directory))


def require_root() -> None:
    """TlstaxError (HOST) unless we may make network namespaces."""
    find_program("ip", "iproute2")
    if os.geteuid() != 0:
        raise TlstaxError(
            "cannot make network namespaces",
            "only root may",
            "Run it as root, or use the transports tcp and unix",
            ExitCode.HOST,
        )


def ip(*arguments: str, namespace: str | None = None) -> str:
    """What `ip` of iproute2 prints, in a namespace if given; TlstaxError (HOST) where it fails."""
    where = ["-n", namespace] if namespace else []
    command = [str(find_program("ip", "iproute2")), *where, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TlstaxError(
            "cannot set up a network namespace",
            f"`{' '.join(command[1:])}` said: {done.stderr.strip()}",
            "Run it as root on a kernel with network namespaces; `tlstax lab clean` removes"
            " what a crashed run left",
            ExitCode.HOST,
        )
    return done.stdout


@contextmanager
def new_namespace(resources: Resources, role: str) -> Iterator[str]:
    """A network namespace with its loopback interface up; its name."""
    taken = {resource.name for resource in resources.listed()}
    names = (f"tlstax-{resources.tag}-{role}{number}" for number in range(1, 1000))
    name = next(name for name in names if name not in taken)
    resources.register("namespace", name)
    try:
        ip("netns", "add", name)
        ip("link", "set", "lo", "up", namespace=name)
        yield name
    finally:
        resources.release("namespace", name)


def interface_bytes(namespace: str, interface: str) -> int:
    """What an interface received and sent so far."""
    (facts,) = ip_json("-s", "link", "show", "dev", interface, namespace=namespace)
    counters: dict[str, dict[str, int]] = facts["stats64"]
    return counters["rx"]["bytes"] + counters["tx"]["bytes"]


def ip_json(*arguments: str, namespace: str) -> list[dict[str, Any]]:
    """The same as data."""
    found: list[dict[str, Any]] = json.loads(ip("-j", *arguments, namespace=namespace) or "[]")
    return found


def server_namespace(server: PrivateServer) -> str:
    """The server's; a caller's mistake if it has none of its own."""
    if server.request.namespace is None:
        raise TlstaxError(
            "cannot reach the server from another network namespace",
            "it was not started in one of its own",
            "Start it with ServerRequest(namespace=NAME)",
            ExitCode.USAGE,
        )
    return server.request.namespace
