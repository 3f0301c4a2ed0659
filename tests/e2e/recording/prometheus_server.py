# SPDX-License-Identifier: GPL-2.0-only
"""Debian's Prometheus as a process: it scrapes a port of this host, and is asked."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tlstax.workloads.servers.server_directory import free_port

Ask = Callable[[str], list[dict[str, Any]]]
_CONFIGURATION: Final = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: tlstax
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def start(
    folder: Path, rules: str, port: int, spawn: Callable[..., Any], options: tuple[str, ...] = ()
) -> Ask:
    """One that scrapes a port every second and evaluates these rules; how it is asked."""
    program = shutil.which("prometheus")
    assert program, "run `make packages-test`"
    rule_file, file, own = folder / "rules.yml", folder / "prometheus.yml", free_port()
    rule_file.write_text(rules)
    file.write_text(_CONFIGURATION.format(rules=rule_file, port=port))
    spawn(
        [
            program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{own}", "--log.level=error", *options,
        ]
    )  # fmt: skip

    def ask(path: str) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/{path}") as answer:
                data = json.load(answer)["data"]
        except OSError:
            return []
        return list(data.get("result", data.get("alerts")))

    return ask


def query(text: str) -> str:
    """What to ask for the value of an expression."""
    return "query?" + urllib.parse.urlencode({"query": text})
