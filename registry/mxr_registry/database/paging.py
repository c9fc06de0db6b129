"""Pages of lists, bounded in rows and in bytes: a row can be large, because its text comes from clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from mxr.util.codec import refuse

from .session import Row, Session

MAX_PAGE = 4 << 20
"""Bytes of the rows of one page. A page has at least one row."""

MAX_ROWS = 1_000
"""Rows of one page."""

PREFETCHED = 8
"""Rows that are read from the database at once."""


def read_page(
    session: Session, query: Any, to_text: Callable[[Row], str], limit: int = MAX_ROWS
) -> tuple[list[str], Row | None]:
    """Return the texts of the first rows of a query, and the last of these rows if there are more."""
    texts: list[str] = []
    size, last = 0, None
    result = session.execute(query.limit(limit + 1).execution_options(yield_per=PREFETCHED))
    with closing(result):
        for row in result:
            text = to_text(row)
            size += len(text.encode())
            if texts and (len(texts) == limit or size > MAX_PAGE):
                return texts, last
            texts.append(text)
            last = row
    return texts, None


def begins_with(column: Any, prefix: str) -> Any:
    """SQL condition: a name begins with this prefix. The column is compared by code points, so that an index serves."""
    return (column >= prefix) & (column < prefix + chr(0x10FFFF))


def check_number(after: str) -> int:
    """Return the cursor of a list that is ordered by a number. Raises `UsageError`."""
    if not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise refuse("after", "the value of `next` in the previous page", after[:40])
    return int(after)
