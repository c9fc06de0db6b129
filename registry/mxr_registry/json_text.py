"""JSON of replies: stored documents go into them as they are, without being read.

A stored document can be large, because its text comes from clients, and as objects it takes many times the memory.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import orjson

from mxr.util import codec


def stored(text: str | None) -> orjson.Fragment | None:
    """Return the value of a stored JSON document; null without one."""
    return None if text is None else orjson.Fragment(text)


def to_json(value: Any) -> bytes:
    """Return the JSON of a message, or of a JSON value in which documents may be `stored`."""
    return orjson.dumps(codec.encode(value) if is_dataclass(value) else value)
