# SPDX-License-Identifier: GPL-2.0-only
"""The recipes of experiments: which there are, what one says, running one."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.matrix.scale import SCALES

if TYPE_CHECKING:
    from tlstax.workloads.recipe import Recipe


def register(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `list`, `show`, `run` and `resume` to the actions of `tlstax lab`."""
    actions.add_parser("list", help="say which recipes there are").set_defaults(run=run_list)
    show = actions.add_parser("show", help="print a recipe, to be changed and run as a file")
    show.set_defaults(run=run_show)
    run = actions.add_parser("run", help="run a recipe, with a report at the end")
    run.set_defaults(run=run_recipe)
    for parser in (show, run):
        parser.add_argument("recipe", metavar="RECIPE", help="as `list` calls it, or a TOML file")
    show.add_argument(
        "--scale",
        choices=SCALES,
        help="say instead what a matrix would run at this scale, and about how long",
    )
    run.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("lab-out"),
        help="where captures and report go (default: %(default)s)",
    )
    run.add_argument("--rounds", metavar="N", type=positive, help="rounds, each of both arms")
    run.add_argument("--seconds", metavar="S", type=positive, help="seconds of each run")
    run.add_argument("--servers", metavar="A,B", type=names, default=(), help="only these servers")
    run.add_argument(
        "--scale",
        choices=SCALES,
        help="how much of a matrix: smoke (minutes), standard, or paper, as it was published; "
        "default: the first of these that the recipe has",
    )
    run.add_argument("--seed", metavar="N", type=int, help="of a matrix's order; default: random")
    resume = actions.add_parser("resume", help="go on with a matrix that was interrupted")
    resume.add_argument("folder", metavar="DIR", type=Path, help="as `run` told it")
    resume.add_argument("--retry", action="store_true", help="what failed or was left out, too")
    resume.set_defaults(run=run_resume)
    for parser in (run, resume):
        parser.add_argument(
            "--proxysql",
            metavar="PATH",
            type=Path,
            help="the program of the transport `proxysql`, which no registry has",
        )


def positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, for argparse."""
    return tuple(name for name in text.split(",") if name)


def run_list(options: argparse.Namespace) -> int:
    """One line for each recipe."""
    from tlstax.workloads.recipe import bundled_recipes, load_any

    for name, path in bundled_recipes().items():
        print(f"{name:18} {load_any(path).title}")
    return int(ExitCode.OK)


def run_show(options: argparse.Namespace) -> int:
    """Print a recipe's file, once it is known to be right, or what it would run."""
    from tlstax.workloads.matrix.outline import outline
    from tlstax.workloads.matrix.recipe import MatrixRecipe
    from tlstax.workloads.recipe import find_recipe, load_any

    path = find_recipe(options.recipe)
    recipe = load_any(path, options.scale)
    if options.scale is None:
        print(path.read_text(encoding="utf-8"), end="")
        return int(ExitCode.OK)
    if not isinstance(recipe, MatrixRecipe):
        raise _no_matrix(recipe, "Leave out --scale")
    print("\n".join(outline(recipe)))
    return int(ExitCode.OK)


def run_recipe(options: argparse.Namespace) -> int:
    """Measure and report."""
    from tlstax.workloads import demo, libraries
    from tlstax.workloads.matrix import runner
    from tlstax.workloads.matrix.recipe import MatrixRecipe
    from tlstax.workloads.recipe import find_recipe, load_any

    stages = options.stages
    recipe = load_any(find_recipe(options.recipe), options.scale)
    if isinstance(recipe, MatrixRecipe):
        changes = {
            "rounds_count": options.rounds,
            "seconds": options.seconds,
            "servers": tuple(options.servers),
            "proxysql": _program(options.proxysql),
        }
        folder = runner.prepare(recipe.path, options.scale, options.output, options.seed, changes)
        runner.resume(folder, stages)
        return int(ExitCode.OK)
    if options.scale or options.seed is not None or options.proxysql:
        raise _no_matrix(recipe, "Leave out these options; --rounds and --seconds make it smaller")
    if options.servers and recipe.kind != "libraries":
        raise TlstaxError(
            f"cannot choose servers for {recipe.name}",
            "it measures one server",
            "Leave out --servers",
            ExitCode.USAGE,
        )
    recipe = recipe.with_changes(options.rounds, options.seconds, options.servers)
    if recipe.kind == "libraries":
        libraries.measure(recipe, options.output, stages)
    else:
        demo.measure(recipe, options.output, stages.open_recorder, stages.render_report)
    return int(ExitCode.OK)


def run_resume(options: argparse.Namespace) -> int:
    """Go on, and report."""
    from tlstax.workloads.matrix import runner

    stages, proxysql = options.stages, _program(options.proxysql)
    runner.resume(options.folder, stages, retry=options.retry, proxysql=proxysql)
    return int(ExitCode.OK)


def _program(path: Path | None) -> str | None:
    """As `resume` finds it, too, wherever it is called."""
    return str(path.resolve()) if path else None


def _no_matrix(recipe: "Recipe", what_to_do: str) -> TlstaxError:
    return TlstaxError(
        f"cannot choose scale, seed or proxy for {recipe.name}",
        f"it is of kind '{recipe.kind}'",
        what_to_do,
        ExitCode.USAGE,
    )
