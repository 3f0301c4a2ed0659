# SPDX-License-Identifier: GPL-2.0-only
"""Write a document as JSON, for programs.

NaN and infinities have no place in JSON and none in a document; they raise ValueError.
"""

import json
from collections.abc import Mapping
from typing import Any


def render(document: Mapping[str, Any]) -> str:
    """The document, readable, with a line break at the end."""
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
