# SPDX-License-Identifier: GPL-2.0-only
"""Which source a kernel was built from, and whether it is preemptible, from its texts."""

import pytest

from tlstax.collectors.preflight.kernel_build import parse_build, preemption_mode

BUILDS = {
    "Debian": (
        ("6.1.0-41-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)", ""),
        ((6, 1, 158), "Debian", True),
    ),
    "Ubuntu": (
        ("6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC", "Ubuntu 6.8.0-45.45-generic 6.8.12"),
        ((6, 8, 12), "Ubuntu", True),
    ),
    "RHEL": (
        ("5.14.0-503.el9.x86_64", "#1 SMP PREEMPT_DYNAMIC", ""),
        ((5, 14, 0), "RHEL", False),
    ),
    "Amazon": (
        ("6.1.112-124.190.amzn2023.x86_64", "#1 SMP PREEMPT_DYNAMIC", ""),
        ((6, 1, 112), "Amazon Linux", True),
    ),
    "Fedora": (("6.17.6-300.fc43.x86_64", "#1 SMP", ""), ((6, 17, 6), "Fedora", True)),
    "SUSE": (("6.4.0-150600.23-default", "#1 SMP", ""), ((6, 4, 0), "a distribution", False)),
    "own": (("6.18.44", "#1 SMP PREEMPT_DYNAMIC", ""), ((6, 18, 44), "", True)),
}


@pytest.mark.parametrize("name", BUILDS)
def test_the_upstream_version_and_who_built_it(name: str) -> None:
    (release, version, signature), expected = BUILDS[name]
    build = parse_build(release, version, signature)
    assert (build.version, build.distribution, build.keeps_upstream) == expected


def test_a_name_shows_the_upstream_version() -> None:
    assert parse_build("6.18.44-x1", "#1 SMP").name == "6.18.44"
    (release, version, signature), _ = BUILDS["Debian"]
    assert parse_build(release, version, signature).name == "6.1.158 (6.1.0-41-amd64)"


@pytest.mark.parametrize(
    ("version", "mode", "expected"),
    [
        ("#1 SMP", "", False),
        ("#1 SMP PREEMPT", "", True),
        ("#1 SMP PREEMPT_RT", "", True),
        ("#1 SMP PREEMPT_DYNAMIC", "", None),
        ("#1 SMP PREEMPT_DYNAMIC", "none", False),
        ("#1 SMP PREEMPT_DYNAMIC", "voluntary", False),
        ("#1 SMP PREEMPT_DYNAMIC", "lazy", True),
        ("#1 SMP PREEMPT_DYNAMIC", "full", True),
    ],
)
def test_preemption(version: str, mode: str, expected: bool | None) -> None:
    assert parse_build("6.18.1", version, preemption=mode).preemptible is expected


def test_the_mode_in_use_counts_before_the_command_line_and_the_configuration() -> None:
    config = "CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_NONE=y\n# CONFIG_PREEMPT is not set\n"
    assert preemption_mode("none voluntary (full) lazy", "quiet preempt=lazy", config) == "full"
    assert preemption_mode("", "quiet preempt=lazy", config) == "lazy"
    assert preemption_mode("", "preempt=none quiet preempt=full", config) == "full"  # the last one
    assert preemption_mode("", "quiet", config) == "none"
    assert preemption_mode("", "quiet", "CONFIG_PREEMPT=y\nCONFIG_PREEMPT_COUNT=y") == "full"
    assert preemption_mode("", "quiet", "") == ""
