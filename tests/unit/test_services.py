# SPDX-License-Identifier: GPL-2.0-only
"""The container image and the services of docs/monitoring: what they say exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tlstax.__main__ import build_parser


@pytest.fixture
def pod(repository: Path) -> dict[str, Any]:
    """The pod of the DaemonSet."""
    text = (repository / "docs/monitoring/tlstax-watch-daemonset.yml").read_text()
    (document,) = yaml.safe_load_all(text)
    assert document["kind"] == "DaemonSet"
    labels = document["spec"]["template"]["metadata"]["labels"]
    assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
    found: dict[str, Any] = document["spec"]["template"]["spec"]
    return found


def capabilities(text: str) -> set[str]:
    return set(re.findall(r"\b(?:CAP_)?([A-Z]+(?:_[A-Z]+)*)\b", text))


def test_the_command_of_the_daemon_set_is_one(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    options = build_parser("watch").parse_args(container["args"])
    assert options.command == "watch"
    (port,) = container["ports"]
    assert options.listen == ("0.0.0.0", port["containerPort"])
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(options.output) in mounted
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


def test_rights_are_the_same_everywhere(pod: dict[str, Any], repository: Path) -> None:
    assert pod["hostPID"] is True
    rights = pod["containers"][0]["securityContext"]["capabilities"]
    assert rights["drop"] == ["ALL"]
    unit = (repository / "docs/monitoring/tlstax-watch.service").read_text()
    (bounding,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    page = (repository / "docs/distribution.md").read_text()
    (added,) = re.findall(r"--cap-add=(\S+)", page)
    assert capabilities(bounding) == set(rights["add"]) == capabilities(added)
    explained = re.findall(r"^\| ([A-Z_, ]+) \|", page, re.MULTILINE)
    assert capabilities(" ".join(explained)) == set(rights["add"])


def test_both_services_have_the_same_time_and_memory(pod: dict[str, Any], repository: Path) -> None:
    """Less, and the last hour is not explained, or the process that explains it is killed."""
    unit = (repository / "docs/monitoring/tlstax-watch.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert str(pod["terminationGracePeriodSeconds"]) == settings["TimeoutStopSec"]
    limit = pod["containers"][0]["resources"]["limits"]["memory"]
    assert limit == f"{settings['MemoryMax']}i"


def test_the_image_is_made_of_the_wheel(repository: Path) -> None:
    text = (repository / "Containerfile").read_text()
    assert re.findall(r"^(?:FROM|COPY|ENTRYPOINT) (.*)$", text, re.MULTILINE) == [
        "debian:12-slim",
        "dist/tlstax-*.whl /tmp/",
        '["/opt/tlstax/bin/tlstax"]',
    ]
    assert "--only-binary :all:" in text
