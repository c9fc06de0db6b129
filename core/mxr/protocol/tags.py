"""The messages of API v1 about tags: names such as `prod` for a lock, with its revisions."""

from __future__ import annotations

import re
from typing import Annotated

from mxr.artifact import field_docs
from mxr.artifact.field_docs import SHA256
from mxr.errors import UsageError
from mxr.util import codec
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

TAG_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,79}", re.ASCII)
MAX_LOCK_TEXT = 4 << 20
"""Characters of the lock of a tag."""

MAX_REVISIONS = 20
"""Revisions of a tag that are kept, the latest."""


def check_tag(name: str) -> str:
    """Return `name` if a tag can have it. Raises `UsageError`."""
    if not TAG_NAME.fullmatch(name):
        raise UsageError(
            f"{name[:120]!r} is not a valid name of a tag.",
            hint="Use up to 80 letters, digits, dots, dashes and underscores, such as prod or canary-2026.11.",
        )
    return name


@dataclass(frozen=True, slots=True)
class TagRevision:
    """A revision of a tag: a lock that it names, or named."""

    name: Annotated[str, field_docs.NAME]
    revision: Annotated[int, Doc("Its number. The largest one of a tag is what it names now.", minimum=1)]
    sha256: Annotated[str, Doc("The sha256 of the text of the lock.", pattern=SHA256)]
    artifacts: Annotated[int, Doc("How many artifacts the lock has.", minimum=0)]
    created_by: Annotated[str, Doc("The principal that moved the tag.")]
    created_at: Annotated[Timestamp, Doc("When the tag was moved.")]
    repeats: Annotated[int | None, Doc("The earlier revision that it went back to.", minimum=1)] = None


@dataclass(frozen=True, slots=True)
class Tag:
    """A revision of a tag, and its lock."""

    revision: Annotated[TagRevision, Doc("The revision.")]
    lock: Annotated[str, Doc("The text of the lock file.", maxLength=MAX_LOCK_TEXT)]


@dataclass(frozen=True, slots=True)
class Tags:
    """The reply of `GET /v1/tags`: what each tag names now, by name. Of one tag: its revisions, the latest first."""

    items: Annotated[tuple[TagRevision, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class MoveTag:
    """Moves a tag to a lock, or back to one of its revisions: exactly one of the two."""

    lock: Annotated[str | None, Doc("The text of a lock file.", maxLength=MAX_LOCK_TEXT)] = None
    revision: Annotated[int | None, Doc("The number of an earlier revision.", minimum=1)] = None

    def __post_init__(self) -> None:
        if (self.lock is None) == (self.revision is None):
            raise codec.refuse("lock", "either a lock or a revision", "both or none")
        if len(self.lock or "") > MAX_LOCK_TEXT:
            raise codec.refuse("lock", f"at most {MAX_LOCK_TEXT} characters", len(self.lock or ""))
