"""The options that complete a partial request: what chooses one of several programs on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxr.artifact.attributes import COUNTS, option_values
from mxr.artifact.candidates import Choice
from mxr.artifact.key import Key
from mxr.artifact.target import FEATURES, show_dims
from mxr.errors import UsageError
from mxr.facts import FACTS, command_words

from .builder import FLAGS, PreparedRequest, RequestOptions


def options_of(built: PreparedRequest, choice: Choice) -> dict[str, tuple[str, ...]]:
    """Return the options that state each open fact of a request as this choice has it, in the order of a command."""
    partial, values = built.known, option_values(choice.key, choice)
    opened = set(partial.open_facts)

    def words(*names: str) -> tuple[str, ...]:
        rows = (row for name in names for row in command_words(name, values.get(name)))
        return tuple(word for row in rows for word in row)

    found = {}
    if {"kind", "arch"} & opened:
        found["arch"] = words("vendor", "kind", "arch")
    elif any(getattr(partial.constraints, name) is None and getattr(choice, name) for name in FEATURES):
        found["arch"] = words("arch")
    opened |= {name for name in COUNTS if getattr(partial.constraints, name) is None}
    found |= {name: words(name) for name in (*COUNTS, "rocm", "migraphx") if name in opened and values.get(name)}
    if any(name.startswith("inputs.") for name in opened):
        found["inputs"] = _dims(built, choice.key)
    flags = [name for name in FLAGS if name in opened]
    if flags and choice.consumer is not None:
        found["consumer"] = command_words("consumer", choice.consumer)[0]
    else:
        found |= {name: words(name) for name in flags}
    return found


def distinguishing(rows: Sequence[dict[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return for each row of `options_of` the options in which the rows differ."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    differing = [name for name in names if len({row.get(name) for row in rows}) > 1]
    return [tuple(word for name in differing for word in row.get(name, ())) for row in rows]


def _dims(built: PreparedRequest, key: Key) -> tuple[str, ...]:
    """`--batch N` where it binds all open dims as the key has them, else each open input."""
    found, partial, options = dict(key.inputs), built.known, built.options
    for name, shape in partial.inputs:
        if options.batch is None and shape and shape[0] is None and isinstance(batch := found[name][0], int):
            try:
                if tuple(sorted(built.model.bind(batch, options.inputs))) == key.inputs:
                    return ("--batch", str(batch))
            except UsageError:
                break
    open_inputs = [name for name, shape in partial.inputs if shape is None or None in shape]
    return tuple(word for name in open_inputs for word in ("--input", f"{name}={show_dims(found[name])}"))


def request_words(options: RequestOptions) -> list[tuple[str, ...]]:
    """Return the options that a command needs to state the same request, each with its value."""
    values: dict[str, Any] = {fact.name: getattr(options, fact.name) for fact in FACTS}
    values["inputs"] = {name: show_dims(shape) for name, shape in options.inputs}
    return [words for name, value in values.items() for words in command_words(name, value)]
