# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax lab run libraries`: real servers side by side, an unavailable one left out."""

import json
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Run
from tlstax.workloads.servers.catalogue import CLIENTS, find_kind
from tlstax.workloads.servers.installing import installed_program


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_two_libraries_are_compared_and_what_cannot_be_had_is_one_line(
    npm: None,
    lab_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["mariadb", "mysql56"]
    if not installed_program(find_kind("mysql57")):  # what comes by Maven is then unavailable
        monkeypatch.setitem(CLIENTS, "maven", "no-such-client")
        names.append("mysql57")
    options = ["--rounds", "2", "--seconds", "1", "--servers", ",".join(names)]
    assert main(["lab", "run", "libraries", *options, "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {
        *("results.sqlite", "recipe.toml", "captures", "libraries.json", "libraries.html"),
        *("mariadb.tlstax", "mysql56.tlstax"),
    }
    assert list((folder / "captures").iterdir()) == [], "turns are joined to one for each server"
    document = json.loads((folder / "libraries.json").read_text())
    by_name = {server["name"]: server for server in document["servers"]}
    for name, server in by_name.items():
        assert name in printed
        assert server["round_count"] == 2
        assert server["handshake"]["total"]["value_ns"] > server["private_key_ns"] > 100_000
        assert server["record"]["total"]["value_ns"] > 0
        assert server["unknown_share"] <= 0.1
        with CaptureReader.open(folder / f"{name}.tlstax") as reader:
            runs = [(run.scenario, run.arm, run.round) for run in reader.rows(Run)]
        assert len(runs) == len(set(runs)) == 8
    assert set(document["left_out"]) == set(names) - set(by_name)
    yassl = by_name["mysql56"]
    assert "no AES-NI code" in yassl["build"]["lacks"]
    assert "TLSv1 only" in yassl["build"]["lacks"]
    assert [entry["name"] for entry in yassl["hot_record"]][:2] == [
        "TaoCrypt::AES::encrypt",
        "TaoCrypt::SHA::Transform",
    ]
    # A saved folder is compared again without the servers.
    page = (folder / "libraries.html").read_text()
    assert main(["report", str(folder)]) == 0
    assert (folder / "libraries.html").read_text() == page
