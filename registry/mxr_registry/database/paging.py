"""Pages of lists, and their filters.

A page is bounded in rows and in characters: a row can be large, because its text comes from clients.

A cursor says after which row the next page begins, not how many rows were before it: rows that come and go meanwhile
neither hide others nor repeat them.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from pydantic import BaseModel, Field

from mxr.errors import Json, UsageError
from mxr.util import codec

from .session import Row, Session

MAX_PAGE = 4 << 20
"""Characters in the rows of one page. A page has at least one row."""

MAX_ROWS = 1_000
"""Rows of one page."""

PREFETCHED = 8
"""Rows that are read from the database at once."""


MAX_CURSOR = 2_000
"""Characters of a cursor."""

Position = Sequence[int | float | str]
"""The values that a list is ordered by, of one row."""

CURSOR = "^[0-9A-Za-z_-]+$"
"""The form of a cursor."""


class PageFilters(BaseModel, extra="forbid", frozen=True):
    """The part of a list that a request asks for."""

    after: str | None = Field(default=None, description="`next` of the previous page of this list.", pattern=CURSOR)
    limit: int = Field(default=MAX_ROWS, description="How many items a page has at most.", ge=1, le=MAX_ROWS)


class ListFilters(PageFilters, frozen=True):
    """Filters of a list; None matches all."""

    limit: int = Field(default=100, description="How many items a page has at most.", ge=1, le=MAX_ROWS)

    def equal(self, row: Any, *names: str) -> Iterator[Any]:
        """Yield the conditions that columns have the values of these filters; an arch is compared without features."""
        for name in names:
            value = getattr(self, name)
            if value is not None:
                yield getattr(row, name) == (value.partition(":")[0] if name == "arch" else value)


def list_page(
    session: Session,
    query: Any,
    to_item: Callable[[Row], Json],
    kind: str,
    position: Callable[[Row], Position],
    limit: int = MAX_ROWS,
) -> Json:
    """Return one page, `{"items": [...], "next": CURSOR or null}`. `kind`: the name of the list, in its cursors."""
    items, last = read_page(session, query, to_item, limit)
    return {"items": items, "next": None if last is None else cursor(kind, position(last))}


def cursor(kind: str, position: Position) -> str:
    """Return the opaque text that stands for a position in a list."""
    return urlsafe_b64encode(codec.canonical([kind, *position]).encode()).decode().rstrip("=")


def read_cursor(kind: str, text: str, *types: type) -> list[Any]:
    """Return the position in a cursor of this list, whose values have these types. Raises `UsageError`."""
    wrong = codec.refuse("after", "the value of `next` in the previous page of this list", text[:40])
    if len(text) > MAX_CURSOR:
        raise wrong
    try:
        found = codec.parse(b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), "after")
    except (binascii.Error, ValueError, UsageError):
        raise wrong from None
    if not (isinstance(found, list) and [type(each) for each in found] == [str, *types] and found[0] == kind):
        raise wrong
    if any(isinstance(each, int) and not 0 <= each < 1 << 53 for each in found):
        raise wrong
    return [codec.text(each, "after") if isinstance(each, str) else each for each in found[1:]]


def read_page(
    session: Session, query: Any, to_item: Callable[[Row], Json], limit: int = MAX_ROWS
) -> tuple[list[Json], Row | None]:
    """Return the items of the first rows of a query, and the last of these rows if there are more."""
    items: list[Json] = []
    size, last = 0, None
    result = session.execute(query.limit(limit + 1).execution_options(yield_per=PREFETCHED))
    with closing(result):
        for row in result:
            item = to_item(row)
            size += size_of(row) + size_of(item.values())
            if items and (len(items) == limit or size > MAX_PAGE):
                return items, last
            items.append(item)
            last = row
    return items, None


def size_of(values: Iterable[Any]) -> int:
    """Return the number of characters in these values, and in lists of texts among them."""
    found = (each for each in values if isinstance(each, (str, list)))
    return sum(len(each) if isinstance(each, str) else size_of(each) for each in found)


def begins_with(column: Any, prefix: str) -> Any:
    """SQL condition: a name begins with this prefix. The column is compared by code points, so that an index serves."""
    return (column >= prefix) & (column < prefix + chr(0x10FFFF))
