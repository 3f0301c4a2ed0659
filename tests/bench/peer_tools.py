# SPDX-License-Identifier: GPL-2.0-only
"""Other tools that watch a server, as `make bench-overhead` runs them beside tlstax."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.tests.bench.watching import Tool

SSLLATENCY: Final = ("/usr/sbin/ssllatency.bt", "/usr/share/bpftrace/tools/ssllatency.bt")


def perf_dwarf(pid: int) -> Tool | str:
    """Perf with DWARF stacks, or why not."""
    if not (perf := shutil.which("perf")):
        return "perf is not installed (Debian: linux-perf)"
    command = [perf, "record", "-q", "-e", "cpu-clock", "-F", "99", "--call-graph", "dwarf"]
    return Tool(
        "perf record --call-graph dwarf -F 99",
        lambda directory: [*command, "-p", str(pid), "-o", str(directory / "perf")],
        "",
    )


def ssllatency(pid: int) -> Tool | str:
    """Bpftrace's own tool, which watches the host's libssl, whoever uses it."""
    script = next((path for path in SSLLATENCY if Path(path).exists()), None)
    bpftrace = shutil.which("bpftrace")
    if not script or not bpftrace:
        return "bpftrace or its ssllatency.bt is not installed"
    rows = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    libssl = [(row[4], row[5]) for row in rows if "/libssl.so" in row[-1]]
    if not libssl:
        return "it knows libssl only, and this server has its TLS library inside"
    hosts = {str(path.stat().st_ino) for path in Path("/usr/lib").glob("*/libssl.so*")}
    if not hosts.intersection(inode for inode, _ in libssl):
        return "it watches the host's libssl, and this server has another one"
    return Tool("bpftrace ssllatency.bt", lambda _: [bpftrace, "-B", "line", script], "Hit Ctrl-C")


def record_functions(pid: int) -> list[str]:
    """The TLS library's read and write, as bpftrace names their probes; none if unknown."""
    _, plan = plan_in_child(pid)
    library = plan.library("tls")
    names = {"yassl": ("yaSSL_read", "yaSSL_write"), "wolfssl": ("wolfSSL_read", "wolfSSL_write")}
    if library is None:
        return []
    read, write = names.get(library.id, ("SSL_read", "SSL_write"))
    paths = sorted(entry.open_path for entry in library.objects)
    path = next((one for one in paths if "libssl" in one), paths[0])
    return [f"{path}:{function}" for function in (read, write)]


def script_tool(pid: int, name: str, lines: str) -> Tool | str:
    """A bpftrace program over the library's read and write."""
    bpftrace = shutil.which("bpftrace")
    if not bpftrace:
        return "bpftrace is not installed"
    if not (places := record_functions(pid)):
        return "the functions that read and write records are not known"
    script = 'BEGIN { printf("watching\\n"); } '
    script += " ".join(lines.replace("PLACE", place) for place in places)
    return Tool(name, lambda _: [bpftrace, "-B", "line", "-e", script], "watching")


def sslsniff_like(pid: int) -> Tool | str:
    """Bcc's sslsniff needs kernel headers; this does what it does, and prints sizes only."""
    return script_tool(
        pid,
        "each read and write printed (as sslsniff)",
        "uprobe:PLACE { @from[tid] = nsecs; } uretprobe:PLACE /@from[tid]/ "
        '{ printf("%d %d %d\\n", tid, (int32)retval, nsecs - @from[tid]); delete(@from[tid]); }',
    )


def funclatency(pid: int) -> Tool | str:
    """libbpf-tools' funclatency where it is installed, else bpftrace's histogram."""
    program = shutil.which("funclatency-libbpf")
    if program and (places := record_functions(pid)):
        return Tool(
            "funclatency (libbpf-tools), writes",
            lambda _: [program, "-u", "-p", str(pid), places[1]],
            "Tracing",
        )
    return script_tool(
        pid,
        "histogram of reads and writes (bpftrace)",
        "uprobe:PLACE { @from[tid] = nsecs; } uretprobe:PLACE /@from[tid]/ "
        "{ @us = hist((nsecs - @from[tid]) / 1000); delete(@from[tid]); }",
    )


def offcputime(pid: int) -> Tool | str:
    """libbpf-tools' offcputime."""
    program = shutil.which("offcputime-libbpf") or shutil.which("offcputime")
    if not program:
        return "libbpf-tools are not installed (not in this Debian), and bcc needs kernel headers"
    return Tool("offcputime (libbpf-tools)", lambda _: [program, "-p", str(pid)], "")


PEER_MAKERS: dict[str, Callable[[int], Tool | str]] = {
    "perf-dwarf": perf_dwarf,
    "ssllatency": ssllatency,
    "sslsniff-like": sslsniff_like,
    "funclatency": funclatency,
    "offcputime": offcputime,
}
