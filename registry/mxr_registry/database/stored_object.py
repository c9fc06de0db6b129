"""What a request that stores an object leaves for its reply."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The JSON of an object, its name in paths, and whether the request made it."""

    text: str
    name: str
    new: bool
