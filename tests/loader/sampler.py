# SPDX-License-Identifier: GPL-2.0-only
"""The CPU samples: one perf event for each CPU that is online, also for those that come later."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.bpf import enable_perf_event, open_cpu_clock
from tlstax.collectors.recording.programs.names import SAMPLER
from tlstax.tests.loader.libbpf import BpfObject, Link

_ONLINE: Final = Path("/sys/devices/system/cpu/online")


class Sampler:
    """Samples every CPU while it is attached. A CPU in its idle loop is not sampled."""

    def __init__(self, bpf: BpfObject, hz: int) -> None:
        """`hz` samples a second and CPU."""
        self._object = bpf
        self._hz = hz
        self._is_on = True
        self._links: dict[int, tuple[Link, int]] = {}

    def attach(self) -> None:
        """Sample the CPUs that are online. Raises TlstaxError (HOST) when the kernel refuses."""
        for cpu in online_cpus():
            try:
                self._sample(cpu)
            except OSError as error:
                raise TlstaxError(
                    f"cannot sample CPU {cpu}",
                    error.strerror or str(error),
                    "run `tlstax doctor`, or record without samples (--sample-hz 0)",
                    ExitCode.HOST,
                ) from error

    def keep_up(self) -> None:
        """Sample the CPUs that came online since. The kernel ends the event of one that left."""
        if not self._links:
            return
        online = online_cpus()
        for cpu in self._links.keys() - set(online):
            self._links.pop(cpu)[0].close()
        for cpu in online:
            if cpu not in self._links:
                with suppress(OSError):  # it left again; the next call tries again
                    self._sample(cpu)

    def _sample(self, cpu: int) -> None:
        fd = open_cpu_clock(self._hz, cpu=cpu)
        try:
            link = self._object.attach_perf_event(SAMPLER, fd)
        except OSError:
            os.close(fd)
            raise
        self._links[cpu] = (link, fd)
        enable_perf_event(fd, on=self._is_on)

    def close(self) -> None:
        """Detach."""
        for link, _ in self._links.values():
            link.close()
        self._links.clear()


def online_cpus() -> list[int]:
    """CPUs that are online, from sysfs's list format such as 0-3,6."""
    cpus: list[int] = []
    for part in _ONLINE.read_text(encoding="ascii").strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus
