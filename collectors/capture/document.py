# SPDX-License-Identifier: GPL-2.0-only
"""Prints docs/capture.md from the schema and the vocabulary.

python -m tlstax.collectors.capture.document > docs/capture.md
"""

import inspect
from collections.abc import Iterable
from typing import Any, Final

from tlstax.collectors.capture.schema import (
    APPLICATION_ID,
    KEYED,
    META_KEYS,
    TABLES,
    USER_VERSION,
    columns,
    table_name,
)
from tlstax.collectors.capture.vocabulary import (
    CATEGORY_TERMS,
    FUNCTION_CATEGORY_TERMS,
    LEVEL_TERMS,
    LOSSES,
    PHASE_TERMS,
    ROLE_TERMS,
    SERIES_HOW_TERMS,
    SERIES_UNIT_TERMS,
    STATE_TERMS,
    TARGET_ROLE_TERMS,
    Term,
)

_HEAD: Final = """\
# The capture

<!-- Made by `python -m tlstax.collectors.capture.document`: change the schema, not this file. -->

A capture is one SQLite file that only its owner can read. Its `application_id` is
`0x{application_id:08x}` ("tlsx"), its `user_version` is {version}; a file of another program or of
a later version is refused. An older file is read: missing tables and columns have defaults.

- **Rows become visible window by window.** All rows of a window are one transaction. A recorder
  that is killed leaves every finished window; if it was killed during a commit, a `-journal` file
  is in the same directory. Keep both files together: the reader rolls back a copy and does not
  change the files.
- **One file.** A rollback journal is used, not a write-ahead log, so a closed capture is complete.
- **No flush before the end.** `fsync` on a database host would disturb what is measured, so
  finished windows survive a crash of the recorder, but not a power failure.
- **Readers.** While another program has a transaction open on the file, windows wait in the
  recorder's memory. If one still has at the end, a copy with all windows takes the place of the
  file: who has the earlier one open sees the later windows after opening it again.
- **Keys and facts.** A row of a table with a key replaces the earlier row with the same key. Rows
  of the other tables are facts; readers sum them.
- **Units.** Each number has its unit as suffix (`_ns`, `_bytes`, `_count`, `_hz`). Times are
  `CLOCK_MONOTONIC`; `meta` holds one wall-clock anchor.
- **Nothing secret.** No SQL text, no payload, no key, no password, no kernel address.
"""


def capture_markdown() -> str:
    """The text of docs/capture.md."""
    parts = [_HEAD.format(application_id=APPLICATION_ID, version=USER_VERSION)]
    parts += [_table_section(table) for table in TABLES]
    parts.append("## Known keys of `meta`\n\n" + _grid(("key", "meaning"), META_KEYS.items()))
    parts.append("## Phases\n\n" + _terms(PHASE_TERMS))
    parts.append("## States\n\n" + _terms(STATE_TERMS))
    parts.append("## Roles of a target\n\n" + _terms(TARGET_ROLE_TERMS))
    parts.append("## Roles of a thread\n\n" + _terms(ROLE_TERMS))
    parts.append("## Levels of a window\n\n" + _terms(LEVEL_TERMS))
    parts.append("## Units of a series\n\n" + _terms(SERIES_UNIT_TERMS))
    parts.append("## Kinds of a series\n\n" + _terms(SERIES_HOW_TERMS))
    parts.append("## Categories of `primitive`\n\n" + _terms(FUNCTION_CATEGORY_TERMS))
    parts.append(
        "## Losses\n\n" + _grid(("kind", "what happened", "what it means"), LOSSES.values())
    )
    parts.append(
        "## Categories\n\nNot stored: `tlstax report` assigns samples to them by the taxonomy.\n\n"
        + _terms(CATEGORY_TERMS)
    )
    return "\n".join(parts)


def _table_section(table: type[Any]) -> str:
    rows = (
        (
            f"`{column.name}`",
            column.kind.__name__ + (" or NULL" if column.nullable else ""),
            column.doc,
        )
        for column in columns(table)
    )
    kind = "keyed" if table in KEYED else "facts"
    text = inspect.cleandoc(table.__doc__ or "")
    return f"## `{table_name(table)}`\n\n{text} ({kind})\n\n" + _grid(
        ("column", "type", "meaning"), rows
    )


def _terms(terms: Iterable[Term]) -> str:
    return _grid(("name", "meaning"), ((f"`{term.name}`", term.meaning) for term in terms))


def _grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(capture_markdown(), end="")
