"""What a service can be configured with and is: a sample file, a reference table, and the values in force."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Mapping
from typing import Any

from .reading import ServiceValues
from .schema import ServiceSchema, Setting, settings_of

WIDTH = 100


def sample_file(schema: ServiceSchema) -> str:
    """Return a configuration file with all settings as comments, each with its meaning and its default."""
    lines = [
        f"# Configuration of {schema.program}: `--config FILE`, or {schema.file_variable}=FILE.",
        "# Options override variables, and these this file. The values are the defaults.",
        f"# `{schema.program} config show` tells what is in force, and where it comes from.",
        "#",
        '# Times are numbers of seconds, or texts such as "90s", "10m", "2h", "7d"; sizes are numbers of bytes, or',
        '# texts such as "64MiB".',
    ]
    for name, kind in schema.tables.items():
        lines += ["", *_comment(_about(kind)), *([f"[{name}]"] if name else [])]
        for setting in settings_of(name, kind):
            lines += ["", *_comment(_description(setting)), f"#{setting.name} = {_example(setting)}"]
    for name, example in schema.lists.items():
        lines += ["", *(line if line.startswith("#") else f"#{line}" for line in example.strip().splitlines())]
        assert f"[[{name}]]" in example
    return "\n".join(lines) + "\n"


def _about(kind: type) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def _description(each: Setting) -> str:
    names = ", ".join(filter(None, (each.variable, each.facts.option)))
    return f"{each.facts.about} {_value(each)} ({names})".replace("  ", " ")


def _value(each: Setting) -> str:
    """What a value must be and, where there is no default, what applies without one."""
    absent = f" Without a value: {each.facts.absent}." if each.default is None else ""
    return _expected(each) + absent


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)]


def _example(each: Setting) -> str:
    return each.facts.example or toml_value(each.shown(each.default))


def toml_value(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
    return json.dumps(value)


def reference(schema: ServiceSchema) -> str:
    """Return the settings of all tables in Markdown."""
    titles = {name: f"`[{name}]`" if name else "At the top of the file" for name in schema.tables}
    return "\n".join(f"{title}\n\n{reference_table(schema, name)}\n" for name, title in titles.items())


def reference_table(schema: ServiceSchema, table: str) -> str:
    """Return the settings of a table as a table in Markdown."""
    rows = ["| setting | default | variable, option | meaning |", "|---|---|---|---|"]
    for setting in settings_of(table, schema.tables[table]):
        default = f"none: {setting.facts.absent}" if setting.default is None else f"`{toml_value(setting.default)}`"
        names = ", ".join(f"`{name}`" for name in (setting.variable, setting.facts.option) if name)
        about = f"{setting.facts.about} {_expected(setting)}".strip()
        rows.append(f"| `{setting.name}` | {default} | {names} | {about} |")
    return "\n".join(rows)


def _expected(each: Setting) -> str:
    """What a value must be, where its name and default do not tell."""
    if each.kind in (int, float):
        words = (each.facts.unit or "A number").capitalize() + each.range
    elif each.facts.choices:
        words = "One of " + ", ".join(f"`{choice}`" for choice in each.facts.choices)
    else:
        return ""
    return f"{words}."


def values_document(values: ServiceValues, effective: Mapping[str, Any]) -> dict[str, Any]:
    """Return each value with where it comes from, in JSON. `effective`: what applies without a value, by path."""
    rows = {}
    for setting in values.schema.settings:
        found = values.found[setting.path]
        value = effective.get(setting.path) if found.value is None else found.value
        rows[setting.path] = {"value": setting.shown(value), "from": found.source}
    file = str(values.file) if values.file else None
    return {"file": file, "settings": rows, "lists": {name: len(rows) for name, rows in values.lists.items()}}


def values_lines(document: Mapping[str, Any]) -> list[str]:
    """Return such a document as lines of a table."""
    rows = [
        (path, "none" if row["value"] is None else toml_value(row["value"]), row["from"])
        for path, row in document["settings"].items()
    ]
    rows += [(name, f"{count} in the file", document["file"]) for name, count in document["lists"].items()]
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    return [f"{path:<{widths[0]}}  {value:<{widths[1]}}  {source}" for path, value, source in rows]
