"""What the type of a field does not tell: its meaning, and its pattern, range or example.

    size: Annotated[int, Doc("The size in bytes.", minimum=0)]

A program that reads and writes messages never asks for it. The registry does, when it makes the schemas of its OpenAPI
document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = dict[str, Any]


class Doc:
    """Describes a field by a sentence and by keywords of JSON schema.

    `pattern`: a compiled pattern that the whole text matches, or the text of one. `items`: keywords for each element.
    `stated`: a reply never has null, although a value in a program can be None.
    """

    __slots__ = ("keywords", "stated")

    def __init__(self, description: str, *, stated: bool = False, **keywords: Any) -> None:
        self.keywords = {"description": description, **keywords}
        self.stated = stated

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Schema]) -> Schema:
        """Add the keywords to the schema of the type. Called by pydantic."""
        schema = handler(core)
        if self.stated:
            schema = next(each for each in schema["anyOf"] if each != {"type": "null"})
        own = _plain(self.keywords)
        items = {**schema.get("items", {}), **own.get("items", {})}
        return {**schema, **own, **({"items": items} if items else {})}


def _plain(keywords: Mapping[str, Any]) -> Schema:
    return {name: _value(each) for name, each in keywords.items()}


def _value(value: Any) -> Any:
    if isinstance(value, re.Pattern):
        return f"^(?:{value.pattern})$"
    if isinstance(value, Mapping):
        return _plain(value)
    return list(value) if isinstance(value, tuple) else value
