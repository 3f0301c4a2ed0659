# SPDX-License-Identifier: GPL-2.0-only
"""Option files, TLS choices and recipes: text in, text out."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.matrix.scale import SCALES
from tlstax.workloads.recipe import (
    DEMO,
    Recipe,
    bundled_recipes,
    find_recipe,
    load_any,
    load_recipe,
)
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.catalogue import load_catalogue
from tlstax.workloads.tls import TlsChoice

GOOD = """
[experiment]
rounds = 2
seconds = 3
key = "ec:p256"
[tls]
version = "TLSv1.2"
[[load]]
scenario = "connect"
threads = 4
operations = 100
[[load]]
scenario = "read_only"
seconds = 5
"""


def test_server_options_say_what_a_measurement_needs() -> None:
    settings = configuration.ServerSettings(port=12345, tls_cipher="AES128-SHA")
    lines = configuration.server_options(settings, Path("/d")).splitlines()
    options = dict(line.split(" = ") for line in lines if " = " in line)
    assert options["port"] == "12345"
    assert options["bind_address"] == "127.0.0.1"
    assert options["datadir"] == "/d/data"
    assert options["ssl_cipher"] == "AES128-SHA"
    assert options["skip_name_resolve"] == "ON"
    assert options["performance_schema"] == "OFF"
    assert int(options["thread_cache_size"]) >= int(options["max_connections"])
    assert not any("password" in line for line in lines)


def test_no_cipher_is_no_line() -> None:
    settings = configuration.ServerSettings(port=12345)
    assert "ssl_cipher" not in configuration.server_options(settings, Path("/d"))


def test_the_plaintext_option_file_does_not_mention_tls() -> None:
    # sysbench 1.0 reads `mysql-ssl=off` in a file as a switch that is on.
    assert "ssl" not in configuration.sysbench_options(1, "u", "00", tls=False)
    assert "mysql-ssl=on\n" in configuration.sysbench_options(1, "u", "00", tls=True)


def test_the_counting_client_speaks_plaintext() -> None:
    text = configuration.client_options(Path("/d/s"), "u", "00")
    assert "skip-ssl" in text.splitlines()
    assert "protocol = socket" in text


def test_accounts_take_hexadecimal_passwords_only() -> None:
    passwords = dict.fromkeys(configuration.USERS, "00ff")
    statements = configuration.account_statements(passwords)
    assert sum("REQUIRE SSL" in statement for statement in statements) == 1
    passwords[configuration.USER_TLS] = "'; DROP DATABASE mysql; --"
    with pytest.raises(ValueError, match="hexadecimal"):
        configuration.account_statements(passwords)


def test_tls_choice_becomes_an_openssl_configuration() -> None:
    old = TlsChoice("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384", "prime256v1", 0)
    text = old.openssl_configuration()
    assert "MinProtocol = TLSv1.2\nMaxProtocol = TLSv1.2\n" in text
    assert "CipherString = ECDHE-RSA-AES256-GCM-SHA384:@SECLEVEL=0\n" in text
    assert "Groups = prime256v1\n" in text
    new = TlsChoice(cipher="TLS_AES_128_GCM_SHA256").openssl_configuration()
    assert "Ciphersuites = TLS_AES_128_GCM_SHA256\n" in new
    assert "CipherString" not in new
    assert TlsChoice().is_default


def test_unknown_tls_version() -> None:
    with pytest.raises(TlstaxError, match=r"TLSv1\.2 and TLSv1\.3") as caught:
        TlsChoice(version="SSLv3")
    assert caught.value.exit_code == ExitCode.USAGE


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_is_read(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, GOOD))
    assert (recipe.rounds_count, str(recipe.key), recipe.tls.version) == (2, "ec:p256", "TLSv1.2")
    connect, read_only = recipe.loads
    assert (connect.threads_count, connect.seconds, connect.operation_count) == (4, 3, 100)
    assert (read_only.threads_count, read_only.seconds, read_only.operation_count) == (2, 5, None)
    assert recipe.driving_s == 2 * 2 * (3 + 5)
    changed = recipe.with_changes(7, 1)
    assert (changed.rounds_count, changed.loads[0].seconds, changed.loads[1].seconds) == (7, 1, 1)
    assert changed.loads[0].operation_count == 100


def test_the_demo_fits_into_four_minutes() -> None:
    recipe = load_recipe(DEMO)
    assert {load.scenario.driver for load in recipe.loads} == {"pooled", "storm"}
    assert recipe.rounds_count % 2 == 0, "an even number of rounds balances the order of the arms"
    assert recipe.driving_s <= 180, "the rest is for the server, the warm-up and the report"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"lacks \[experiment\]"),
        ("experiment = 3", "is not a table"),
        ("[experiment]\n", r"lacks a \[\[load\]\]"),
        ("[experiment]\n[load]\n", r"lacks a \[\[load\]\]"),
        ("[experiment]\nround = 3\n[[load]]\nscenario='connect'", "unknown 'round'"),
        ("[experiment]\nrounds = 0\n[[load]]\nscenario='connect'", r"within 1\.\.1000"),
        ("[experiment]\nrounds = true\n[[load]]\nscenario='connect'", "is no int"),
        ("[experiment]\nseconds = 1.5\n[[load]]\nscenario='connect'", "is no int"),
        ("[experiment]\n[[load]]\nscenario='disconnect'", "known scenarios are point_select"),
        ("[experiment]\n[[load]]\nthreads=2", "lacks 'scenario'"),
        ("[experiment]\n[[load]]\nscenario='connect'\nthread=2", "unknown 'thread'"),
        ("[experiment]\n[[load]]\nscenario=['connect']", "is no str"),
        ("[experiment]\n[[load]]\nscenario='connect'\n[tls]\nciper='x'", "unknown 'ciper'"),
        ("kind = 'race'\n[experiment]\n[[load]]\nscenario='connect'", "known kinds are tax, lib"),
        ("[experiment]\nservers=[3]\n[[load]]\nscenario='connect'", "is no list of names"),
        ("[experiment]\nservers=['x']\n[[load]]\nscenario='connect'", "servers belong to"),
        ("kind='libraries'\n[experiment]\n[[load]]\nscenario='connect'", "servers belong to"),
        ("[experiment", "is not TOML"),
        ("\xff", "is not TOML"),
    ],
)
def test_recipe_errors_name_file_and_entry(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TlstaxError, match=complaint) as caught:
        load_recipe(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(path) in str(caught.value)


def test_every_bundled_recipe_can_be_run() -> None:
    recipes = {name: load_any(path) for name, path in bundled_recipes().items()}
    assert {"demo", "libraries", "connect-storm"} <= set(recipes)
    catalogue = load_catalogue()
    for name, recipe in recipes.items():
        assert recipe.name == name
        assert recipe.title
        if isinstance(recipe, Recipe):
            assert set(recipe.servers) <= set(catalogue)
        for scale in SCALES:
            assert load_any(bundled_recipes()[name], scale).name == name
        assert find_recipe(name) == bundled_recipes()[name]


def test_the_comparison_has_every_server_and_enough_rounds() -> None:
    recipe = load_recipe(find_recipe("libraries"))
    assert set(recipe.servers) == set(load_catalogue())
    assert recipe.rounds_count >= 4, "below that there are no intervals"
    assert recipe.driving_s * len(recipe.servers) <= 300, "the rest is for what is beside it"
    changed = recipe.with_changes(servers=("mysql56",))
    assert (changed.servers, changed.rounds_count) == (("mysql56",), recipe.rounds_count)


def test_an_unknown_recipe_is_one_clear_line() -> None:
    with pytest.raises(TlstaxError, match=r"known ones are .*demo") as caught:
        find_recipe("none")
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="No such file"):
        load_recipe(tmp_path / "none.toml")
