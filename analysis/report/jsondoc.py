# SPDX-License-Identifier: GPL-2.0-only
"""Write a document as JSON: for programs, and as the data of the HTML page.

NaN and infinities have no place in JSON and none in a document; they raise ValueError.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def render(document: Mapping[str, Any]) -> str:
    """The document, readable, with a line break at the end."""
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def for_script(document: Mapping[str, Any]) -> str:
    """The document for a script element: no character in it can end the element.

    All five characters can occur inside JSON strings only, where their escapes mean the same.
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)
