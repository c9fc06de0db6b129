"""Points in time: seconds since 1970 in the code, RFC 3339 in JSON."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import lru_cache

from mxr.util.codec import refuse

PATTERN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
EXAMPLE = "2026-11-24T20:33:41.250000Z"


class Timestamp(float):
    """A point in time in seconds since 1970. In JSON: RFC 3339 in UTC with microseconds, so that texts sort by time."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return the text, such as `2026-11-24T20:33:41.250000Z`."""
        return datetime.fromtimestamp(self, timezone.utc).isoformat(timespec="microseconds")[:-6] + "Z"

    @classmethod
    def from_json(cls, document: object, where: str) -> Timestamp:
        """Return the point in time of a text with any offset. Raises `UsageError`."""
        found = re.fullmatch(PATTERN, document, re.ASCII) if isinstance(document, str) else None
        if isinstance(document, str) and found:
            offset = "+00:00" if found[2] == "Z" else found[2]
            try:
                whole = datetime.fromisoformat(document[:19] + offset).timestamp()
            except ValueError:
                pass
            else:
                return cls(whole + float(found[1] or 0))
        raise refuse(where, f"a time such as {EXAMPLE}", document)


@lru_cache(maxsize=4096)
def time_text(seconds: float | None) -> str | None:
    """Return the JSON value of a time, or None. The same artifacts answer most requests, with the same times."""
    return None if seconds is None else Timestamp(seconds).to_json()
