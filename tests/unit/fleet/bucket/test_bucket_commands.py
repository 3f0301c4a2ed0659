# SPDX-License-Identifier: GPL-2.0-only
"""Commands with a bucket: which addresses they take, what they refuse, that they repeat no key."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.fleet.bucket import adding, address
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.tests.fleet_rows import renamed

BUCKET = Bucket("fleet", "all")
DEMO = Path(__file__).resolve().parents[4] / "docs/demo/demo.tlstax"


@pytest.mark.parametrize(
    "text",
    [
        "s3://KEY:SECRET@fleet/all",
        "s3://fleet/all?access_key=SECRET",
        "s3://fleet/../other",
        "s3://fleet/a//b",
        "s3://fleet/a*",
        "s3://",
        "s3:///all",
        "gs://fleet/all",
        "S3://KEY:SECRET@fleet/all",
    ],
)
def test_an_address_with_more_than_a_name_is_refused_and_not_repeated(
    text: str, capsys: Any
) -> None:
    assert main(["fleet", "top", "--data", text]) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert "s3://BUCKET/PREFIX" in printed.err
    assert "SECRET" not in printed.err + printed.out


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h",
        "http://u:SECRET@h:1",
        "http://:SECRET@h:1",
        "http://h:1/path?x=SECRET",
        "http://h:SECRET",
        "http://[::1",
        "h",
    ],
)
def test_an_endpoint_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(TlstaxError, match="AWS_ENDPOINT_URL") as refused:
        address.endpoint({"AWS_ENDPOINT_URL": url})
    assert "SECRET" not in str(refused.value)
    assert refused.value.exit_code == ExitCode.USAGE


def test_the_endpoint_is_that_of_the_environment() -> None:
    assert address.endpoint({}) == {}
    assert address.endpoint(
        {
            "AWS_ENDPOINT_URL": "http://other:1",
            "AWS_ENDPOINT_URL_S3": "https://store:9000/",
            "AWS_DEFAULT_REGION": "eu-1",
            "AWS_CA_BUNDLE": "ca.pem",
        }
    ) == {
        "scheme": "https",
        "endpoint_override": "store:9000",
        "region": "eu-1",
        "tls_ca_file_path": "ca.pem",
    }


def test_an_empty_bucket_is_no_data_set(objects: Path, capsys: Any) -> None:
    for command in ("top", "compact"):
        assert main(["fleet", command, "--data", "s3://fleet/all"]) == ExitCode.USAGE
        assert "there is no data set in s3://fleet/all" in capsys.readouterr().err
    assert main(["fleet", "compact", "--data", "s3://absent/all"]) == ExitCode.USAGE


def test_a_bucket_that_is_not_there_is_told_before_anything_is_read(
    objects: Path, tmp_path: Path, capsys: Any
) -> None:
    options = [str(tmp_path / "none.tlstax"), "--data", "s3://absent/all"]
    assert main(["fleet", "add", *options]) == ExitCode.IO
    assert "there is no such bucket" in capsys.readouterr().err


def test_a_watch_refuses_a_bucket(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["watch", "--name", "mysqld", "--output", "s3://fleet/all"])
    assert ended.value.code == ExitCode.USAGE
    assert "A watch writes to a folder" in capsys.readouterr().err


def test_without_a_temporary_folder_nothing_is_added_or_merged(
    rolled: RolledUp, objects: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (2, 3):
        adding.add(renamed(rolled, f"db{number}", number), BUCKET)
    before = sorted(objects.rglob("*.parquet"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])
    for asked in (["add", str(DEMO)], ["compact"]):
        assert main(["fleet", *asked, "--data", str(BUCKET)]) == ExitCode.IO
        assert "cannot make a temporary file" in capsys.readouterr().err
        assert sorted(objects.rglob("*.parquet")) == before


def test_a_file_that_is_missing_is_no_question_of_temporary_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> int:
        raise FileNotFoundError("another")

    monkeypatch.setattr("tlstax.analysis.report.commands.fleet._compact", fail)
    with pytest.raises(FileNotFoundError, match="another"):
        main(["fleet", "compact", "--data", "s3://fleet/all"])


def test_a_tier_without_intervals_is_refused_by_those_that_are_there(
    rolled: RolledUp, objects: Path, capsys: Any
) -> None:
    adding.add(rolled, BUCKET)
    shutil.rmtree(objects / "tier=10s")
    assert main(["fleet", "top", "--data", str(BUCKET), "--tier", "10s"]) == ExitCode.USAGE
    assert "it has those of 1m and 1h only" in capsys.readouterr().err
    assert main(["fleet", "top", "--data", str(BUCKET), "--tier", "1m"]) == 0
