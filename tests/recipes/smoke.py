# SPDX-License-Identifier: GPL-2.0-only
"""Run every recipe of kind matrix at scale smoke; a table of how long each took and what failed.

smoke.py OUTPUT_DIRECTORY [RECIPE ...]
"""

import subprocess
import sys
import time
from pathlib import Path

from tlstax.workloads.matrix.recipe_file import bundled_recipes, load_recipe
from tlstax.workloads.matrix.store import Store


def main() -> int:
    """The number of recipes that did not end with status 0."""
    output = Path(sys.argv[1])
    names = sys.argv[2:] or [
        name for name, path in bundled_recipes().items() if load_recipe(path).kind == "matrix"
    ]
    lines, failed_count = [], 0
    for name in names:
        started_s = time.monotonic()
        command = [sys.executable, "-m", "tlstax", "lab", "run", name, "-o", str(output)]
        status = subprocess.run(command, check=False).returncode
        failed_count += status != 0
        folders = sorted(output.glob(f"{name}-smoke-*"))
        counts: dict[str, int] = {}
        if folders:
            with Store.open(folders[-1]) as store:
                counts = store.counts()
        runs = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        lines.append(f"{name:18} {(time.monotonic() - started_s) / 60:5.1f} min  {runs or 'none'}")
    print("\n".join(["", *lines]))
    return failed_count


if __name__ == "__main__":
    sys.exit(main())
