# SPDX-License-Identifier: GPL-2.0-only
"""Option files, TLS choices and recipes: text in, text out."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.workloads.matrix.duration import run_s
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.matrix.recipe_file import DEMO, bundled_recipes, find_recipe, load_recipe
from tlstax.workloads.matrix.scale import SCALES, Length
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.catalogue import load_catalogue
from tlstax.workloads.tls import TlsChoice

GOOD = """
kind = "tax"
watch = ["client"]
[matrix]
servers = ["host"]
keys = ["ec:p256"]
tls = ["off", "old"]
[tls.old]
version = "TLSv1.2"
[[cells]]
scenarios = ["connect"]
threads = [4]
operations = 100
[[cells]]
scenarios = ["read_only"]
threads = [2]
[scale.standard]
rounds = 2
seconds = 3
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


def test_a_recipe_of_one_capture_is_read(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, GOOD))
    assert recipe.server_of("host").kind is None, "this host's own"
    found = [(cell.scenario, cell.threads, cell.arm, cell.key) for cell in recipe.cells]
    assert found == [
        ("connect", 4, "plaintext", "ec:p256"),
        ("connect", 4, "tls", "ec:p256"),
        ("read_only", 2, "plaintext", "ec:p256"),
        ("read_only", 2, "tls", "ec:p256"),
    ]
    recorded = [recipe.recorded_as(cell) for cell in recipe.cells]
    assert recorded == [("storm", "connect")] * 2 + [("pooled", "read_only")] * 2
    assert recipe.length_of(recipe.cells[0]).operation_count == 100
    assert recipe.tls[recipe.cells[1].tls].choice.version == "TLSv1.2"
    changed = recipe.with_changes(7, 1)
    assert (changed.rounds_in_turn, changed.length_of(changed.cells[2])) == (7, Length(1))
    program = Path("/opt/mysqld")
    assert recipe.with_program(program).server_of("host").program == program


def driving_s(recipe: Recipe) -> float:
    """How long all runs drive load."""
    return recipe.scale.rounds_count * sum(run_s(recipe, cell) for cell in recipe.cells)


def test_the_demo_fits_into_four_minutes() -> None:
    recipe = load_recipe(DEMO)
    assert {driver for driver, _ in map(recipe.recorded_as, recipe.cells)} == {"pooled", "storm"}
    rounds_count = recipe.scale.rounds_count
    assert rounds_count % 2 == 0, "an even number of rounds balances the order of the arms"
    assert driving_s(recipe) <= 180, "the rest is for the server, the warm-up and the report"
    assert recipe.watch == ("client",), "its report has the client's side"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('kind = "tax"', 'kind = "race"', "known kinds are tax, libraries, matrix"),
        ("[matrix]", "[experiment]", r"lacks \[matrix\]"),
        ("rounds = 2", "rounds = 0", r"within 1\.\.1000"),
        ("rounds = 2", "rounds = true", "is no int"),
        ("seconds = 3", "seconds = 1.5", "is no int"),
        ('["read_only"]', "[3]", "is no list of names"),
        ("threads = [2]", "thread = [2]", "unknown 'thread'"),
        ('["host"]', '["host", "mariadb"]', "several servers, keys or encryptions"),
        ('["ec:p256"]', '["ec:p256", "rsa:2048"]', "several servers, keys or encryptions"),
        ("threads = [2]", "threads = [2, 8]", "would be the same arm in a report of kind 'tax'"),
        ('["off", "old"]', '["off", "old", "on"]', "would be the same arm"),
        ("[matrix]", "[matrix", "is not TOML"),
        ("[matrix]", "\xff", "is not TOML"),
    ],
)
def test_recipe_errors_name_file_and_entry(
    old: str, new: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "recipe.toml"
    text = GOOD.replace(old, new)
    assert text != GOOD
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TlstaxError, match=complaint) as caught:
        load_recipe(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(path) in str(caught.value)


def test_every_bundled_recipe_can_be_run() -> None:
    recipes = {name: load_recipe(path) for name, path in bundled_recipes().items()}
    assert {"demo", "libraries", "connect-storm"} <= set(recipes)
    for name, recipe in recipes.items():
        assert recipe.name == name
        assert recipe.title
        for scale in SCALES if recipe.kind == "matrix" else ("standard",):
            scaled = load_recipe(bundled_recipes()[name], scale)
            assert scaled.name == name
            assert scaled.scale.rounds_count >= LEAST_UNITS, "below that there are no intervals"
        assert find_recipe(name) == bundled_recipes()[name]


def test_the_comparison_has_every_server_and_enough_rounds() -> None:
    recipe = load_recipe(find_recipe("libraries"))
    assert {cell.server for cell in recipe.cells} == set(load_catalogue())
    assert recipe.scale.rounds_count >= LEAST_UNITS
    assert driving_s(recipe) <= 300, "the rest is for all else"
    assert recipe.watch == (), "probes in the drivers would slow down what is compared"
    changed = recipe.with_changes(servers=("mysql56",))
    assert {cell.server for cell in changed.cells} == {"mysql56"}


def test_an_unknown_recipe_is_one_clear_line() -> None:
    with pytest.raises(TlstaxError, match=r"known recipes are .*demo") as caught:
        find_recipe("none")
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="no such file"):
        load_recipe(tmp_path / "none.toml")
