"""Words an error for a program: options of the command line become arguments of Python, or fields of the HTTP API.

Commands stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TEXTS = {"for": "consumer"} | {
    name: name.replace("-", "_")
    for name in (
        "arch",
        "vendor",
        "kind",
        "real-arch",
        "rocm",
        "migraphx",
        "precision",
        "tuning",
        "calibration",
        "output",
    )
}
"""Arguments that are strings, by option."""

NUMBERS = {"batch": "batch", "num-cu": "num_cu", "chiplets": "chiplets"}
SWITCHES = {
    name: name.replace("-", "_")
    for name in ("exact", "offline", "refresh", "force", "follow-links", "offload-copy", "fast-math")
}
SETTINGS = {"registry": "registry", "host": "host_file", "cache-dir": "cache_dir", "plaintext": "plaintext"}
CONSUMER_OPTIONS = ("ort", "ort-cache")

OPTION = re.compile(r"--(no-)?([a-z][a-z-]*)(?:[ =]((?!-)[^\s;()`]*[^\s;()`,.]))?")
COMMAND = re.compile(r"`(?!--)[^`]*`|\bmxr(?:-registry|-worker)? [a-z][a-z-]*(?: [^\s`]*[^\s`,.;:])*")
"""A command in backticks, or one that ends where its sentence or clause does."""

ADJACENT = re.compile(r"""(\b[a-z_]+=(?:"[^"]{0,999}"|\[[^\]]{0,999}\]|\{[^}]{0,999}\}|\w+)) (?=[a-z_]+=)""")
"""Bounded, because a registry words some errors: text without an end must not be read again from each beginning."""

ENGLISH = frozenset(
    ("and", "as", "cannot", "for", "if", "implies", "in", "is", "of", "on", "or", "out", "requires", "to", "with")
)
"""Words that follow an option in a sentence, and are not its value."""


def in_python(text: str) -> str:
    """Return a message or a hint with `--batch 8` as `batch=8`. What is no argument of the library stays as it is."""
    return _outside_commands(text, _translated)


def in_fields(text: str) -> str:
    """Return a message or a hint with `--num-cu 8` as `num_cu 8`."""
    return _outside_commands(text, lambda words: OPTION.sub(_field, words))


def _field(option: re.Match[str]) -> str:
    negated, name, value = option[1], option[2], option[3]
    word = {"for": "consumer", "input": "inputs", "option": "options"}.get(name, name.replace("-", "_"))
    return ("no " if negated else "") + word + ("" if value is None else option[0][-len(value) - 1] + value)


def _outside_commands(text: str, translate: Callable[[str], str]) -> str:
    found, at = [], 0
    for command in COMMAND.finditer(text):
        found += [translate(text[at : command.start()]), command[0]]
        at = command.end()
    return "".join((*found, translate(text[at:])))


def _translated(text: str) -> str:
    words = OPTION.sub(_argument, text)
    # Options follow one another; arguments are separated, and one argument has all inputs.
    return ADJACENT.sub(r"\1, ", words).replace("}, inputs={", ", ")


def _argument(option: re.Match[str]) -> str:
    negated, name, value = option[1], option[2], option[3]
    rest = "" if value is None else option[0][-len(value) - 1] + value
    if name in SWITCHES:
        return f"{SWITCHES[name]}={not negated}{rest}"
    if negated or name not in {*TEXTS, *NUMBERS, *SETTINGS, *CONSUMER_OPTIONS, "input", "env", "allow", "option"}:
        return option[0]
    if value is None or value in ENGLISH or (value.isalpha() and value.islower() and name in NUMBERS):
        return _name(name) + rest
    return _assignment(name, value)


def _name(name: str) -> str:
    if name in SETTINGS:
        return f"settings=Settings({SETTINGS[name]}={'True' if name == 'plaintext' else '...'})"
    if name in CONSUMER_OPTIONS:
        return f'consumer_options["{name.replace("-", "_")}"]'
    return {**TEXTS, **NUMBERS, "input": "inputs", "option": "options"}.get(name, name)


def _assignment(name: str, value: str) -> str:
    key, equals, rest = value.partition("=")
    if name == "input":
        return f'inputs={{"{key}": [{rest.replace(",", ", ")}]}}' if equals else f"inputs {value}"
    if name in ("env", "option"):
        return f'{_name(name)}={{"{key}": "{rest}"}}' if equals else f"{_name(name)} {value}"
    if name == "allow":
        return "allow=[" + ", ".join(f'"{each}"' for each in value.split(",")) + "]"
    if name in NUMBERS:
        return f"{NUMBERS[name]}={value}"
    if name in SETTINGS:
        return f'settings=Settings({SETTINGS[name]}="{value}")'
    if name in CONSUMER_OPTIONS:
        return f'consumer_options={{"{name.replace("-", "_")}": "{value}"}}'
    return f'{TEXTS[name]}="{value}"'
