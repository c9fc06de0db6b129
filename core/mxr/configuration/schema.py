"""What a program can be configured with. The fields of a dataclass are the settings of one table.

The field `body` of the dataclass of the table `limits` is `body` in the section `[limits]` of the configuration file,
the environment variable `MXR_LIMITS_BODY`, and `limits.body` on the command line and in messages. The table "" is the
top of the file.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import mxr.facts as facts
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

SECONDS, BYTES, HOURS, DAYS = "seconds", "bytes", "hours", "days"

FACTORS = {
    SECONDS: {"s": 1, "m": 60, "h": 3600, "d": 86_400},
    BYTES: {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50},
}
"""What a text may end with, by unit."""

AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", re.ASCII)
SWITCH = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
HUGE = 2**53


@dataclass(frozen=True, slots=True)
class Facts:
    """What the type of a setting does not tell.

    `about`: one or two sentences. `unit`: of a number. `least`, `most`: its range. `choices`: the texts that it can be.
    `check`: returns the value in its normal form, or raises `ValueError` with what is expected. `secret`: the value is
    shown through `shown` only, quoted in no error, and not taken from a command line. `example`: a value in TOML for
    the sample file, and `absent`: what applies without a value, where there is no default. `option`: of the commands.
    `variable`: its environment variable, where it is not made of its name. `raw`: `check` reads any value by itself.
    """

    about: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None
    secret: bool = False
    shown: Callable[[Any], str] | None = None
    example: str = ""
    absent: str = ""
    option: str = ""
    variable: str = ""
    raw: bool = False


def check_registry_id(text: str) -> str:
    """Return the id of a registry in its normal form. Raises `ValueError` with what is expected."""
    from uuid import UUID

    try:
        return str(UUID(text))
    except ValueError:
        raise ValueError("the id of a registry, as `mxr-registry status` shows it") from None


def setting(default: Any, about: str, **facts: Any) -> Any:
    """Return the field of a dataclass that is a setting."""
    known = Facts(about, **facts)
    return field(default=default, repr=not known.secret, metadata={"setting": known})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `kind`: int, float, bool, str, Path or tuple (of texts)."""

    table: str
    name: str
    kind: type
    default: Any
    facts: Facts

    @property
    def path(self) -> str:
        """Its name in messages and on the command line."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return self.facts.variable or f"MXR_{self.path.replace('.', '_').upper()}"

    @property
    def expected(self) -> str:
        """What a value must be, as the object of a sentence."""
        facts = self.facts
        if facts.choices:
            return " or ".join(
                [", ".join(facts.choices[:-1]), facts.choices[-1]] if facts.choices[1:] else facts.choices
            )
        if self.kind in (int, float):
            number = {SECONDS: "seconds, or a time such as 90s or 2h", BYTES: "bytes, or a size such as 64MiB"}
            what = number.get(facts.unit) or facts.unit or ("an integer" if self.kind is int else "a number")
            return what + self.range
        names = {bool: "true or false", str: "a text that is not empty", Path: "a path", tuple: "a list of texts"}
        return names[self.kind]

    @property
    def range(self) -> str:
        """The range of a number, to follow what it is."""
        least, most = self.facts.least, self.facts.most
        if most is None:
            return "" if least is None else f", {least:.15g} or more"
        return f", {0 if least is None else least:.15g} to {most:.15g}"

    def of_text(self, text: str) -> Any:
        """Return the value that a text of the environment or the command line means. Raises `ValueError`."""
        if self.facts.raw:
            return self.checked(text)
        if self.kind is bool:
            if text.strip().lower() not in SWITCH:
                raise ValueError(self.expected)
            return SWITCH[text.strip().lower()]
        if self.kind is tuple:
            return self.checked(tuple(filter(None, re.split(r"[\s,]+", text))))
        return self.of_document(text)

    def of_document(self, value: object) -> Any:
        """Return the value that a configuration file means. Raises `ValueError` with what is expected."""
        if self.facts.raw:
            return self.checked(value)
        if self.kind in (int, float):
            return self.checked(self._number(value))
        if self.kind is tuple:
            if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
                raise ValueError(self.expected)
            return self.checked(tuple(value))
        if not isinstance(value, bool if self.kind is bool else str) or value == "":
            raise ValueError(self.expected)
        return self.checked(Path(str(value)) if self.kind is Path else value)

    def _number(self, value: object) -> float:
        amount, unit = value, ""
        if isinstance(value, str):
            found = AMOUNT.fullmatch(value.strip())
            if not found or (found[2] and found[2] not in FACTORS.get(self.facts.unit, {})):
                raise ValueError(self.expected)
            amount, unit = float(found[1]) if "." in found[1] else int(found[1]), found[2]
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise ValueError(self.expected)
        number = amount * FACTORS[self.facts.unit][unit] if unit else amount
        if self.kind is int and number != number // 1:
            raise ValueError(self.expected)
        least, most = self.facts.least, self.facts.most
        if not (least is None or number >= least) or not number <= (HUGE if most is None else most):
            raise ValueError(self.expected)
        return int(number) if self.kind is int else float(number)

    def checked(self, value: Any) -> Any:
        """Return a value of the right type in its normal form. Raises `ValueError` with what is expected."""
        if self.facts.raw:
            return self.facts.check(value) if self.facts.check else value
        if isinstance(value, str) and not value.isprintable():
            raise ValueError("printable text")
        if self.facts.choices and value not in self.facts.choices:
            raise ValueError(self.expected)
        return self.facts.check(value) if self.facts.check else value

    def shown(self, value: Any) -> Any:
        """Return a value for people and for JSON: never a secret."""
        if value is None:
            return None
        if self.facts.secret:
            return self.facts.shown(value) if self.facts.shown else "set, not shown"
        if isinstance(value, tuple):
            return list(value)
        return value if isinstance(value, (bool, int, float, str)) else str(value)


@functools.cache
def settings_of(table: str, kind: type) -> tuple[Setting, ...]:
    """Return the settings of a table: the fields of its dataclass that `setting` made."""
    # The fields of `mxr.util.frozen`, which are cheap, or those of the standard library.
    rows = getattr(kind, "__value_rows__", None) or {row.name: row for row in dataclasses.fields(kind)}
    known = {
        name: row for name, row in rows.items() if isinstance(row, dataclasses.Field) and "setting" in row.metadata
    }
    kinds = {name: _plain(kind.__annotations__[name]) for name in known}
    return tuple(Setting(table, name, kinds[name], row.default, row.metadata["setting"]) for name, row in known.items())


KINDS = {kind.__name__: kind for kind in (bool, int, float, str, Path, tuple)}


def _plain(annotation: str) -> type:
    """Return the type in an annotation, without None and without the types of elements."""
    return KINDS[annotation.partition(" |")[0].partition("[")[0]]


@dataclass(frozen=True, slots=True)
class ServiceSchema:
    """The settings of one service.

    `program`: its command. `file_variable`: names its configuration file. `tables`: the dataclass of each table.
    `lists`: for each list of tables that only a file can have, an example in TOML. `others`: how the variables of the
    other programs begin, with which this one has nothing to do.
    """

    program: str
    file_variable: str
    tables: Mapping[str, type]
    lists: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings, in order."""
        return tuple(each for name, kind in self.tables.items() for each in settings_of(name, kind))

    def find(self, path: str) -> Setting:
        """Return the setting of this name. Raises `UsageError` with the nearest one."""
        from mxr.display.text import did_you_mean

        known = {each.path: each for each in self.settings}
        if path not in known:
            hint = did_you_mean(path, known)
            raise UsageError(
                f"There is no setting {path[:80]!r}.",
                hint=f"{hint} `{self.program} config sample` lists the settings.".strip(),
            )
        return known[path]


STATED = tuple(fact.name for fact in facts.FACTS if fact.has(facts.DEFAULT) and fact.kind != facts.SHAPES)
"""The facts of a request that a variable states."""

NAMES = (
    *("registry", "registry_id", "token", "token_file", "ca_file", "cache_dir", *STATED),
    *("host_file", "timeout", "retry", "plaintext"),
    *("kserve_allow", "max_age", "max_stale", "cache_size", "cache_owners", "state_dir"),
)

VARIABLES = {name: f"MXR_{name.upper()}" for name in NAMES} | {"host_file": "MXR_HOST"}
"""The variable of each setting. The user's configuration file uses the names of the settings themselves."""
