# SPDX-License-Identifier: GPL-2.0-only
"""The recipes of experiments: which there are, what one says, running one."""

import argparse
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import whole_number
from tlstax.workloads.matrix import runner
from tlstax.workloads.matrix.outline import outline
from tlstax.workloads.matrix.recipe_file import bundled_recipes, find_recipe, load_recipe
from tlstax.workloads.matrix.scale import SCALES, STARTS_MAX

_DIGITS_MAX = 9


def register(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `list`, `show`, `run` and `resume` to the actions of `tlstax lab`."""
    actions.add_parser("list", help="list the recipes").set_defaults(run=run_list)
    show = actions.add_parser("show", help="print a recipe, to be changed and run as a file")
    show.set_defaults(run=run_show)
    run = actions.add_parser("run", help="run a recipe, with a report at the end")
    run.set_defaults(run=run_recipe)
    for parser in (show, run):
        parser.add_argument("recipe", metavar="RECIPE", help="as `list` calls it, or a TOML file")
    show.add_argument(
        "--scale",
        choices=SCALES,
        help="print instead what would be run at this scale, and about how long it takes",
    )
    run.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("lab-out"),
        help="where captures and report go (default: %(default)s)",
    )
    add_replication(run)
    run.add_argument("--seconds", metavar="S", type=positive, help="seconds of each run")
    run.add_argument("--servers", metavar="A,B", type=names, default=(), help="only these servers")
    run.add_argument(
        "--scale",
        choices=SCALES,
        help="how much of it: smoke (minutes), standard, or paper, as it was published; "
        "default: the first of these that the recipe has",
    )
    run.add_argument(
        "--seed", metavar="N", type=int, help="of the order of runs; default: random in a matrix"
    )
    resume = actions.add_parser("resume", help="continue an experiment that was interrupted")
    resume.add_argument("folder", metavar="DIR", type=Path, help="directory that `run` printed")
    resume.add_argument(
        "--retry", action="store_true", help="also run again what failed or was left out"
    )
    resume.set_defaults(run=run_resume)
    for parser in (run, resume):
        parser.add_argument(
            "--proxysql",
            metavar="PATH",
            type=Path,
            help="the program of the transport `proxysql`, which tlstax does not install",
        )


def add_replication(parser: argparse.ArgumentParser) -> None:
    """Add how often things are repeated."""
    parser.add_argument(
        "--starts",
        metavar="N",
        type=_starts,
        help="start each server N times, and run all rounds on each start; from 8 starts on, "
        "intervals of 95 %% hold for a server, not only for one start of it",
    )
    parser.add_argument("--rounds", metavar="N", type=positive, help="rounds, each of both arms")


def _starts(text: str) -> int:
    number = positive(text)
    if number > STARTS_MAX:
        raise argparse.ArgumentTypeError(f"{number} starts: at most {STARTS_MAX} are allowed")
    return number


def positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    number = whole_number(text, _DIGITS_MAX)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, for argparse."""
    return tuple(name for name in text.split(",") if name)


def run_list(options: argparse.Namespace) -> int:
    """One line for each recipe."""
    for name, path in bundled_recipes().items():
        print(f"{name:18} {load_recipe(path).title}")
    return int(ExitCode.OK)


def run_show(options: argparse.Namespace) -> int:
    """Print a recipe's file, once it is known to be right, or what it would run."""
    path = find_recipe(options.recipe)
    recipe = load_recipe(path, options.scale)
    if options.scale is None:
        print(path.read_text(encoding="utf-8"), end="")
    else:
        print("\n".join(outline(recipe)))
    return int(ExitCode.OK)


def run_recipe(options: argparse.Namespace) -> int:
    """Measure and report."""
    stages, path = options.stages, find_recipe(options.recipe)
    changes = {
        "rounds_count": options.rounds,
        "seconds": options.seconds,
        "servers": tuple(options.servers),
        "proxysql": _program(options.proxysql),
        "starts_count": options.starts,
    }
    recipe = load_recipe(path, options.scale)
    if recipe.kind == "tax":
        if options.seed is not None:
            raise TlstaxError(
                f"--seed was given with the recipe {recipe.name}",
                "its runs have a fixed order",
                "Leave --seed out",
                ExitCode.USAGE,
            )
        runner.measure(recipe.with_changes(**changes), options.output, stages)
    else:
        folder = runner.prepare(path, options.scale, options.output, options.seed, changes)
        runner.resume(folder, stages)
    return int(ExitCode.OK)


def run_resume(options: argparse.Namespace) -> int:
    """Go on, and report."""
    stages, proxysql = options.stages, _program(options.proxysql)
    runner.resume(options.folder, stages, retry=options.retry, proxysql=proxysql)
    return int(ExitCode.OK)


def _program(path: Path | None) -> str | None:
    """As `resume` finds it, too, wherever it is called."""
    return str(path.resolve()) if path else None
