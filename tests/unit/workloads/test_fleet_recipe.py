# SPDX-License-Identifier: GPL-2.0-only
"""What `make bench-fleet` replays: recordings of every server that tlstax installs, over TLS."""

from pathlib import Path

from tlstax.workloads.matrix.recipe_file import load_recipe
from tlstax.workloads.servers.catalogue import load_catalogue


def test_every_server_is_recorded_with_new_and_with_open_connections(repository: Path) -> None:
    recipe = load_recipe(repository / "tests/bench/fleet_servers.toml")
    cells = {(cell.server, cell.scenario) for cell in recipe.cells}
    assert cells == {
        (kind, load) for kind in load_catalogue() for load in ("connect", "point_select")
    }
