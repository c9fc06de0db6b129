"""The messages of API v1 about the trail: who did what, from where and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mxr.artifact import field_docs
from mxr.util.codec import Timestamp
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

RUNS = ("sweep", "fsck", "backup")
"""Runs of maintenance."""

KINDS = (
    "artifact.publish",
    "artifact.amend",
    "artifact.promote",
    "artifact.yank",
    "artifact.quarantine",
    "artifact.unyank",
    "artifact.statement",
    "artifact.remove",
    "artifact.expire",
    "lock.put",
    "lock.remove",
    "tag.move",
    "tag.remove",
    "token.create",
    "token.revoke",
    "namespace.set",
    "key.create",
    "key.retire",
    "key.revoke",
    "key.resign",
    *RUNS,
)
"""What is recorded. A newer registry may have more."""

SHOWN_TO_ALL = ("artifact.", "lock.", "tag.")
"""How the kinds begin that every reader of artifacts sees; the others are for administrators."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the trail."""

    at: Annotated[Timestamp, Doc("When, by the clock of the registry's database.")]
    kind: Annotated[str, Doc("What was done.", examples=[*KINDS])]
    principal: Annotated[str, Doc("Who did it; `mxr-registry`: a command of the operator, or the registry itself.")]
    subject: Annotated[str, Doc("To what: the id of an artifact or a token, or the name of a lock or a namespace.")]
    address: Annotated[str | None, Doc("From where; null: it is not told to this caller, or not known.")] = None
    model: Annotated[str | None, Doc("The model of the artifact.")] = None
    detail: Annotated[Mapping[str, Any] | None, Doc("What it replaced, and the like.")] = None


@dataclass(frozen=True, slots=True)
class Events:
    """The reply of `GET /v1/events`, newest first."""

    items: Annotated[tuple[Event, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None
