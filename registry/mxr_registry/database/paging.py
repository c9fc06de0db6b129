"""Pages of lists, and their filters.

A page is bounded in rows and in bytes: a row can be large, because its text comes from clients.

A cursor says after which row the next page begins, not how many rows were before it: rows that come and go meanwhile
neither hide others nor repeat them.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from mxr.errors import UsageError
from mxr.util import codec

from .session import Row, Session

MAX_PAGE = 4 << 20
"""Bytes of the rows of one page. A page has at least one row."""

MAX_ROWS = 1_000
"""Rows of one page."""

PREFETCHED = 8
"""Rows that are read from the database at once."""


MAX_CURSOR = 2_000
"""Characters of a cursor."""

Filters = TypeVar("Filters", bound="ListFilters")

Position = Sequence[int | float | str]
"""The values that a list is ordered by, of one row."""


@dataclass(frozen=True, slots=True)
class ListFilters:
    """Filters of a list, as in a query string; None matches all. `after`: `next` of the previous page."""

    limit: int = 100
    after: str | None = None

    most: ClassVar[Mapping[str, int]] = {"limit": MAX_ROWS}
    """The filters that are numbers, each from 1 to this one."""

    @classmethod
    def read(cls: type[Filters], query: Mapping[str, str]) -> Filters:
        """Read the filters from a query string. Raises `UsageError` for an unknown filter or an invalid value."""
        known = cls.__dataclass_fields__
        for name in query:
            if name not in known:
                hint = f"Use one of these filters: {', '.join(sorted(known))}."
                raise UsageError(f"{name[:40]}: unknown filter.", hint=hint)
        numbers = {name: _number(name, query[name], most) for name, most in cls.most.items() if name in query}
        values: dict[str, Any] = {**query, **numbers}
        return cls(**values)

    def equal(self, row: Any, *names: str) -> Iterator[Any]:
        """Yield the conditions that columns have the values of these filters; an arch is compared without features."""
        for name in names:
            value = getattr(self, name)
            if value is not None:
                yield getattr(row, name) == (value.partition(":")[0] if name == "arch" else value)


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise UsageError(f"{name}: expected 1 to {most}, found {text[:20]!r}.", hint=f"Correct {name}.")
    return int(text)


def list_page(
    session: Session,
    query: Any,
    to_text: Callable[[Row], str],
    kind: str,
    position: Callable[[Row], Position],
    limit: int = MAX_ROWS,
) -> str:
    """Return the JSON of one page, `{"items": [...], "next": CURSOR or null}`.

    `kind`: the name of the list, in its cursors.
    """
    texts, last = read_page(session, query, to_text, limit)
    return page_json(texts, None if last is None else cursor(kind, position(last)))


def page_json(texts: Sequence[str], next_cursor: str | None) -> str:
    """Return the JSON of a page with these rows."""
    return '{"items":[' + ",".join(texts) + f'],"next":{codec.canonical(next_cursor)}}}'


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
