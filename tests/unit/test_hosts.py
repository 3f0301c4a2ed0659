# SPDX-License-Identifier: GPL-2.0-only
"""What is said of hosts by their kernel's configuration alone."""

import pytest

from tlstax.tests.kernels.hosts import NEEDED, RETURNS, Host, verdict

WHOLE = "".join(f"CONFIG_{option}=y\n" for option in (*NEEDED, *RETURNS, "PREEMPT_VOLUNTARY"))
UBUNTU, AMAZON = "6.8.0-52-generic", "6.1.141-165.249.amzn2023.aarch64"


@pytest.mark.parametrize(
    ("release", "config", "words", "sockets"),
    [
        (UBUNTU, WHOLE, "expected to work", "tracepoints"),
        ("5.15.0-144-generic", WHOLE, "expected to work", "returns of functions"),
        (AMAZON, WHOLE.replace("CONFIG_DYN", "# CONFIG_DYN"), "expected to work", "nothing"),
        (AMAZON, WHOLE.replace("CONFIG_IPV6=y", "CONFIG_IPV6=m"), "expected to work", "nothing"),
        (UBUNTU, WHOLE.replace("INFO_BTF=y", "INFO_BTF=n"), "no CONFIG_DEBUG_INFO_BTF", ""),
        (UBUNTU, WHOLE.replace("CONFIG_UPROBES=y\n", ""), "no CONFIG_UPROBES", ""),
        ("5.10.0-28-cloud-amd64", WHOLE, "Linux 5.15 is needed", ""),
        ("5.14.0-284.11.1.el9_2.x86_64", WHOLE, "not known", ""),
        ("4.18.0-553.el8_10.x86_64", WHOLE, "not known", ""),
    ],
)
def test_a_configuration_decides(release: str, config: str, words: str, sockets: str) -> None:
    maker = "RHEL 0" if ".el" in release else "Debian 0"
    found, told_by, _ = verdict(Host(maker, release, config))
    assert words in found
    assert told_by.startswith(sockets)
    assert bool(told_by) == bool(sockets)


def test_hazards_of_its_version_are_named() -> None:
    assert verdict(Host("Debian 0", UBUNTU, WHOLE))[2].startswith("no user stacks")
    assert "no user stacks" not in verdict(Host("Debian 0", "6.12.107-amd64", WHOLE))[2]
