"""What somebody pastes into Explain: a request as JSON, a command of `mxr fetch`, or a log.

A command is read by the table of facts (`mxr.facts`), not by the command's own code, which needs the files of its host.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from mxr.artifact.partial import PartialRequest
from mxr.artifact.target import GfxArch, dim_to_json, parse_input, split_version
from mxr.consumers import find_consumer
from mxr.errors import UsageError
from mxr.facts import BY_NAME, FACTS, FLAG, LIST, NAMES, SHAPES, SWITCH, Fact
from mxr.util import codec
from mxr_registry.artifacts import by_model
from mxr_registry.database.session import Session

COMMAND = ("mxr", "fetch")

BARE = ("--json", "-v", "--verbose", "--offline", "--refresh", "--locked", "--retry", "-q", "--quiet")
"""Options of the command that take no value and state no fact."""

MAX_COMMAND = 32 << 10
"""Letters of a command: to split one takes a microsecond for each."""

MANY = (NAMES, SHAPES)
"""Kinds of facts whose option is repeated."""


def is_command(text: str) -> bool:
    """Whether a text is a command rather than a log."""
    return tuple(text.removeprefix("$").split(None, 2)[:2]) == COMMAND


def read_json(text: str) -> PartialRequest:
    """Return the request in a JSON document: itself, or what has one, such as a miss. Raises `UsageError`."""
    found = codec.parse(text, "The request")
    if isinstance(found, dict) and isinstance(found.get("request"), dict):
        found = found["request"]
    if not isinstance(found, dict):
        raise UsageError("This JSON is no request.", hint="Paste what `mxr key ... --json` prints.")
    if "key" not in found and "model" not in found:
        raise UsageError("This JSON is no request.", hint="It needs a `key`, or the fields of a partial request.")
    return PartialRequest.read(found)


def words_of(text: str) -> tuple[str, dict[str, Any]]:
    """Return the model of a command, and the words that state each fact. Raises `UsageError`."""
    if len(text) > MAX_COMMAND:
        raise UsageError(f"This command has more than {MAX_COMMAND} letters.", hint="Paste the request as JSON.")
    try:
        words = shlex.split(text.strip().removeprefix("$").replace("\\\n", " "))[2:]
    except ValueError:
        raise UsageError("A quote of this command does not end.", hint="Paste the whole command.") from None
    options = {fact.flag: fact for fact in FACTS} | {f"--no-{fact.word}": fact for fact in FACTS if fact.kind == FLAG}
    stated, models, at = dict[str, Any](), list[str](), 0
    while at < len(words):
        word, equals, value = words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        at += 1
        fact = options.get(word)
        if not word.startswith("-"):
            models.append(word)
        elif fact is not None and fact.kind in (FLAG, SWITCH):
            stated[fact.name] = not word.startswith("--no-")
        elif fact is None and (word in BARE or equals):
            continue
        else:
            if not equals:
                value, at = (words[at] if at < len(words) else ""), at + 1
            if fact is not None:
                _add(stated, fact, value)
    if len(models) != 1:
        raise UsageError("This command names no model.", hint="Paste a whole command: mxr fetch MODEL --arch ...")
    return models[0], stated


def _add(stated: dict[str, Any], fact: Fact, value: str) -> None:
    if fact.kind in MANY:
        stated.setdefault(fact.name, []).append(value)
    elif fact.kind == LIST:
        stated.setdefault(fact.name, []).extend(value.split(","))
    else:
        stated[fact.name] = value


def read_command(session: Session, namespace: str, text: str) -> PartialRequest:
    """Return the request of a command, as far as it tells without its host. Raises `UsageError`."""
    name, stated = words_of(text)
    model = by_model.identify(session, namespace, PurePath(name).name if not name.startswith("sha256:") else name)
    document: dict[str, Any] = {"model": model, "kind": stated.pop("kind", "gpu"), "constraints": {}}
    if document["kind"] == "gpu":
        document["vendor"] = stated.pop("vendor", "amd")
    constraints = document["constraints"]
    if arch := stated.pop("arch", None):
        found = GfxArch.parse(arch)
        document["arch"] = found.base
        constraints |= {"sramecc": found.sramecc, "xnack": found.xnack}
    for version in ("rocm", "migraphx"):
        if version in stated:
            short, whole = split_version(stated.pop(version), version, zeros=document.get("vendor") == "hygon")
            document[version] = short
            constraints[f"{version}_patch"] = whole
    consumer = find_consumer(stated.pop("consumer", "python"))
    for flag in ("offload_copy", "fast_math"):
        document[flag] = stated.pop(flag, getattr(consumer, flag))
    given = dict(parse_input(each) for each in stated.pop("inputs", []))
    batch = _number(stated.pop("batch", None), "batch")
    document["inputs"] = _inputs(session, namespace, model, given, batch)
    for each in ("env", "options"):
        document[each] = dict(pair.partition("=")[::2] for pair in stated.pop(each, []))
    document["precision"] = stated.pop("precision", "fp32")
    if "calibration" in stated:
        raise UsageError(
            "Calibration data is a file of the host.", hint="Paste the request as JSON: mxr key ... --json."
        )
    stated.pop("follow_links", None)
    for count in ("num_cu", "chiplets"):
        constraints[count] = _number(stated.pop(count, None), count)
    constraints |= stated
    document["constraints"] = {name: value for name, value in constraints.items() if value is not None}
    return codec.decode(PartialRequest, document, "request")


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{BY_NAME[name].flag} needs one number.", hint=f"Write {BY_NAME[name].flag} 8.")
    return int(text)


def _inputs(
    session: Session, namespace: str, model: str, given: Mapping[str, Any], batch: int | None
) -> dict[str, Any]:
    """The dims of the model's inputs: what the command states, the batch where a first dim is open, the rest as is."""
    found: dict[str, Any] = {}
    for name, dims in by_model.declared_inputs(session, namespace, model).items():
        known = None if dims is None else [dim if isinstance(dim, int) else None for dim in dims]
        if known and known[0] is None and batch is not None:
            known[0] = batch
        found[name] = known
    return found | {name: [dim_to_json(dim) for dim in shape] for name, shape in given.items()}
