# SPDX-License-Identifier: GPL-2.0-only
"""The colours of pictures that Python draws: those of the page's style sheet."""

import functools
import re
from typing import Final

from tlstax.analysis.report.html.page import asset

_COLOUR: Final = re.compile(r"--category-(\w+): (#[0-9a-f]{6});")


@functools.cache
def category_colours() -> dict[str, str]:
    """The categories' colours, which both schemes of the page share."""
    return dict(_COLOUR.findall(asset("report.css")))
