# SPDX-License-Identifier: GPL-2.0-only
"""What a matrix would run, before it does: its cells, and how long they and all of it take."""

from tlstax.workloads.matrix.cells import Cell, plan
from tlstax.workloads.matrix.duration import Clock, duration_text
from tlstax.workloads.matrix.recipe import Recipe


def outline(recipe: Recipe) -> list[str]:
    """Lines for people."""
    scale = recipe.scale
    left_out = {cell: why for cell in recipe.cells if (why := _why_not(recipe, cell))}
    cells = [cell for cell in recipe.cells if cell not in left_out]
    by_id = dict(enumerate(cells, start=1))
    runs = plan(cells, scale.rounds_count, recipe.rounds_in_turn, 0, scale.starts_count)
    clock = Clock(recipe, runs, by_id)
    servers = len({cell.server_key for cell in cells})
    return [
        f"{recipe.name} at scale {scale.name}: {recipe.title}",
        *(f"  {cell.label}: {_length_text(recipe, cell)}" for cell in cells),
        *(f"  {cell.label}: left out, {why}" for cell, why in left_out.items()),
        f"cells    {len(cells)}, on {servers} servers (one for each kind, key and encryption)",
        f"starts   {scale.starts_count} of each server",
        f"rounds   {scale.rounds_count} of each start, {recipe.rounds_in_turn} in turn",
        f"runs     {len(runs)}",
        f"time     about {duration_text(clock.remaining_s())}, once all is installed",
    ]


def _why_not(recipe: Recipe, cell: Cell) -> str:
    return next((skip.reason for skip in recipe.skips if cell.fits(skip.where)), "")


def _length_text(recipe: Recipe, cell: Cell) -> str:
    length = recipe.length_of(cell)
    if length.operation_count is None:
        return f"{length.seconds} s"
    return f"{length.operation_count:,} operations"
