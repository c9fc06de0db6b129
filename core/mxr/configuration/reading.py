"""Reads the configuration of a service: options override the environment, which overrides the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mxr.display.text import did_you_mean, redact
from mxr.errors import UsageError

from .config_file import ConfigFile, UntrustedFileError, read_config
from .schema import VARIABLES, ServiceSchema, Setting

DEFAULT = "default"
"""Where a value comes from that nobody set."""

SERVICE_LINK = re.compile(
    r"MXR\w*_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII
)
"""A variable that Kubernetes makes for a service whose name begins with `mxr`. Source: Kubernetes, "Accessing the
Service", Docker links."""

LINK_VALUE = re.compile(r"(tcp|udp|sctp)://\S+")

PREFIX = "MXR_"

ALIKE = 0.87
"""How much alike (0 to 1, `difflib`) an unknown variable and a setting are for the one to be meant: two of 15 letters
differ."""

TESTS = "MXR_TEST_"
"""How the variables of this project's own tests begin."""


class HiddenValueError(ValueError):
    """A value that no error may quote. The text says what is wrong with it, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class SetValue:
    """The value of a setting, and where it comes from: `default`, a file with its line, a variable or an option."""

    value: Any = field(repr=False)
    source: str = DEFAULT


@dataclass(frozen=True, slots=True)
class ServiceValues:
    """The values of all settings of a service, by their paths; those with a problem have their defaults.

    `lists`: the lists of tables of the file. `file`: the configuration file, if there is one. `problems`: all that is
    wrong. `others`: variables that begin with MXR_ and are nobody's that this service knows.
    """

    schema: ServiceSchema
    found: Mapping[str, SetValue]
    lists: Mapping[str, list[Any]] = field(default_factory=dict, repr=False)
    file: Path | None = None
    problems: tuple[UsageError, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what is not used."""
        return tuple(f"{name[:80]} is set, and is no setting of {self.schema.program}" for name in self.others)

    def value(self, path: str) -> Any:
        """Return the value of one setting."""
        return self.found[path].value

    def table(self, name: str, **more: Any) -> Any:
        """Return the dataclass of a table. Raises the first problem, and `UsageError` for values that contradict."""
        if self.problems:
            raise self.problems[0]
        rows = {setting.name: self.value(setting.path) for setting in self.schema.settings if setting.table == name}
        return self.schema.tables[name](**rows, **more)


def read_service(
    schema: ServiceSchema,
    environ: Mapping[str, str],
    options: Mapping[str, Any] | None = None,
    file: Path | None = None,
) -> ServiceValues:
    """Read all values. `options`: texts, words or switches by path, of which None and () are not given. `file`
    overrides the variable that names one.

    Raises `UsageError` for a file that cannot be used; what is wrong in it is among the problems.
    """
    named = environ.get(schema.file_variable)
    path = file or (Path(named) if named else None)
    content = _open(schema, path) if path else None
    problems: list[UsageError] = []
    tables, lists = _tables(schema, content, problems) if content else ({}, {})
    found = {}
    for setting in schema.settings:
        found[setting.path] = SetValue(setting.default)
        for source, read, value in _sources(setting, environ, options or {}, content, tables):
            try:
                found[setting.path] = SetValue(read(value), source)
            except ValueError as problem:
                problems.append(_problem(setting, source, problem, value, schema))
            break
    misspelled, others = _unknown_variables(schema, environ)
    return ServiceValues(schema, found, lists, path, (*problems, *misspelled), others)


def assignments(schema: ServiceSchema, words: Iterable[str]) -> dict[str, str]:
    """Return the values of `--set NAME=VALUE` by path. Raises `UsageError`, also for a secret."""
    found = {}
    for word in words:
        path, equals, text = word.partition("=")
        each = schema.find(path.strip())
        if not equals:
            raise UsageError(f"--set {each.path} has no value.", hint=f"Write --set {each.path}=VALUE.")
        if each.facts.secret:
            raise UsageError(
                f"--set does not take {each.path}: other users can read the command line of a process.",
                hint=f"Set it in the configuration file, or as {each.variable}.",
            )
        found[each.path] = text
    return found


Source = tuple[str, Any, Any]
"""Where a value comes from, the function that reads it, and the value."""


def _sources(
    each: Setting, environ: Mapping[str, str], options: Mapping[str, Any], file: ConfigFile | None, tables: Any
) -> Iterator[Source]:
    """The sources that have a value for a setting, the strongest first."""
    option = options.get(each.path)
    if option is not None and option != ():
        label = each.facts.option or f"--set {each.path}"
        text = " ".join(option) if isinstance(option, tuple) else option
        yield label, each.of_document if isinstance(text, bool) else each.of_text, text
    variable = environ.get(each.variable, "")
    if variable and not (each.name == "port" and LINK_VALUE.fullmatch(variable)):
        yield each.variable, each.of_text, variable
    if each.name in tables.get(each.table, {}):
        assert file is not None
        yield _place(file, each.table, each.name), each.of_document, tables[each.table][each.name]


def _problem(each: Setting, source: str, problem: ValueError, value: object, schema: ServiceSchema) -> UsageError:
    where = source if source in (each.variable, each.facts.option) else f"{source}: {each.path}"
    hint = f"Correct it; `{schema.program} config sample` describes each setting."
    if isinstance(problem, HiddenValueError):
        return UsageError(f"{where}: {problem}.", hint=hint)
    found = "" if each.facts.secret else f", found {_quoted(value)}"
    return UsageError(f"{where}: expected {problem}{found}.", hint=hint)


def _quoted(value: object) -> str:
    try:
        text = redact(json.dumps(value, default=str))
    except (RecursionError, TypeError, ValueError):
        text = "a value that is nested too deeply"
    return text if len(text) <= 60 else text[:57] + "..."


def _open(schema: ServiceSchema, path: Path) -> ConfigFile:
    hint = f"Give another with --config or {schema.file_variable}; `{schema.program} config sample` writes one."
    try:
        # A mounted ConfigMap consists of links, and its files may belong to any user.
        file = read_config(path, follow_links=True, any_owner=True)
    except UntrustedFileError as reason:
        raise UsageError(f"The configuration file {path} is not used: {reason}.", hint=hint) from None
    if file is None:
        raise UsageError(f"There is no configuration file {path}.", hint=hint)
    return file


def _tables(
    schema: ServiceSchema, file: ConfigFile, problems: list[UsageError]
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Any]]]:
    """Return the tables and the lists of tables of a file; what is unknown becomes a problem."""
    tables: dict[str, dict[str, Any]] = {}
    lists: dict[str, list[Any]] = {}
    names = {table: [setting.name for setting in schema.settings if setting.table == table] for table in schema.tables}
    for name, content in (file.table() or {}).items():
        if name in names.get("", ()):
            tables.setdefault("", {})[name] = content
        elif name in schema.lists:
            if isinstance(content, list) and all(isinstance(each, dict) for each in content):
                lists[name] = content
            else:
                problems.append(_misplaced(file, name, f"{name} must be a list of tables", f"Write [[{name}]]."))
        elif name in names and isinstance(content, dict):
            unknown = [key for key in content if key not in names[name]]
            problems += [_unknown(file, name, key, schema, names[name]) for key in unknown]
            tables[name] = {key: value for key, value in content.items() if key in names[name]}
        elif name in names:
            problems.append(_misplaced(file, name, f"{name} must be a table", f"Write [{name}]."))
        else:
            known = [*names.get("", ()), *filter(None, names), *schema.lists]
            problems.append(_unknown(file, "", name, schema, known))
    return tables, lists


def _unknown(file: ConfigFile, table: str, name: str, schema: ServiceSchema, known: Iterable[str]) -> UsageError:
    """The error for an unknown name, which does not quote its value: it may be a secret."""
    known = sorted(known)
    what = f"unknown setting {name[:80]!r} in [{table}]" if table else f"unknown table or setting {name[:80]!r}"
    elsewhere = [setting.path for setting in schema.settings if setting.name == name]
    nearest = did_you_mean(name, known).strip() or (f"Did you mean {elsewhere[0]}?" if elsewhere else "")
    return _misplaced(file, f"{table}.{name}" if table else name, what, f"{nearest} Known: {', '.join(known)}.".strip())


def _misplaced(file: ConfigFile, path: str, problem: str, hint: str) -> UsageError:
    table, _, name = path.rpartition(".")
    return UsageError(f"{_place(file, table, name)}: {problem}.", hint=hint)


def _place(file: ConfigFile, table: str, name: str) -> str:
    """The file, with the number of the line that sets a name in a table where the text shows it."""
    line = line_of(file.text, table, name)
    return f"{file.path}:{line}" if line else str(file.path)


def line_of(text: str, table: str, name: str) -> int | None:
    """Return the number of the line of TOML that sets `name` in `table` (none: "") or begins a table of that name."""
    inside = ""
    header = re.compile(r"\s*\[\[?\s*([^\]]*?)\s*\]\]?\s*(#.*)?")
    assigned = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[.=]")
    dotted = re.compile(rf"\s*{re.escape(table)}\s*\.\s*{re.escape(name)}\s*=")
    inline = re.compile(rf"\s*{re.escape(table)}\s*=\s*\{{.*\b{re.escape(name)}\b")
    for number, line in enumerate(text.splitlines(), 1):
        if found := header.fullmatch(line):
            inside = found[1].strip("\"' ")
            if inside == f"{table}.{name}" or (not table and inside.partition(".")[0] == name):
                return number
        elif (inside == table and assigned.match(line)) or (
            not inside and table and (dotted.match(line) or inline.match(line))
        ):
            return number
    return None


def _unknown_variables(schema: ServiceSchema, environ: Mapping[str, str]) -> tuple[list[UsageError], tuple[str, ...]]:
    """Return the errors for variables that are meant for this service and misspelled, and the names of the others.

    A variable of this table of settings, or one that resembles a setting, is a mistake: with a typo in the URL of its
    database, a service would start with another one. Any other may be somebody's own.
    """
    ours = {setting.variable for setting in schema.settings} | {schema.file_variable}
    known = ours | {*VARIABLES.values()}
    tables = tuple(f"{PREFIX}{table.upper()}_" for table in schema.tables if table)
    problems, others = [], []
    for name in sorted(each for each in environ if each.startswith(PREFIX) and each not in known):
        if name.startswith((TESTS, *schema.others)) or SERVICE_LINK.fullmatch(name):
            continue
        nearest = get_close_matches(name, ours, n=1, cutoff=ALIKE)
        if not nearest and not name.startswith(tables):
            others.append(name)
            continue
        hint = did_you_mean(name, nearest or ours)
        problems.append(
            UsageError(
                f"{name[:80]} is no setting of {schema.program}.", hint=f"{hint} Correct it, or unset it.".strip()
            )
        )
    return problems, tuple(others)
