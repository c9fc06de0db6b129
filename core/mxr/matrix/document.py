"""Reads a YAML file into nodes with line numbers, and substitutes variables. No other module uses YAML.

Only variables that the caller or the field `env_from` of the file names are substituted: a matrix comes with a pull
request, and its values end in keys and names that others can read.

No object is constructed from a tag. The field of a scalar determines how its text is interpreted, so that
`migraphx: 2.10` is version 2.10 and not the number 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.errors import UsageError
from mxr.util import disk
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1 << 20
MAX_NODES = 200_000
"""Maximum number of nodes in a file after its aliases are expanded."""

MAX_TEXT = 4 << 20
"""Maximum number of characters in all scalars of a file after variables are substituted."""

MAX_DEPTH = 12

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}|(\{))")
SECRET = re.compile(
    r"(MXR|AWS|AZURE|GOOGLE|GCP|DOCKER|VAULT)_"
    r"|.*(TOKEN|SECRET|PASS|PWD|CRED|AUTH|KEY|COOKIE|SESSION|CERT|URL|DSN|PROXY)"
)
"""Names of variables that a matrix must not ask for by itself, because their values may be secret."""

ENV_FROM = "env_from"
PLAIN = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "timestamp", "value"))
NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """A node of the file: a text, a list, a mapping of names to (line of the name, node), or null."""

    file: str
    line: int
    text: str | None = None
    items: tuple[DocumentNode, ...] | None = None
    fields: Mapping[str, tuple[int, DocumentNode]] | None = None

    def error(self, problem: str, hint: str) -> UsageError:
        """Return the error for this node."""
        return error_at(self.file, self.line, problem, hint)

    def shown(self) -> str:
        """A short form of the value for messages."""
        if self.text is not None:
            return repr(self.text if len(self.text) <= 40 else self.text[:37] + "...")
        return "a list" if self.items is not None else "a mapping" if self.fields is not None else "nothing"


def error_at(file: str, line: int, problem: str, hint: str) -> UsageError:
    """Return the error for a line of a file, with the message `FILE:LINE: problem`."""
    return UsageError(f"{file}:{line}: {problem}", hint=hint, context={"file": file, "line": line})


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment that `${NAME}` is substituted from. `named` are the variables that the caller allows."""

    environ: Mapping[str, str]
    named: tuple[str, ...] = ()


def read_document(path: Path, variables: Variables) -> DocumentNode:
    """Read a file. Raises `UsageError` with the line, and the errors of `disk.faults`."""
    with disk.faults(path, "read"), path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    return parse(data, str(path), variables)


def parse(data: bytes, file: str, variables: Variables) -> DocumentNode:
    """Parse a YAML document. Raises `UsageError` with the line."""
    import yaml

    if len(data) > MAX_BYTES:
        raise error_at(file, 1, f"A matrix has at most {MAX_BYTES} bytes.", "Split it into several files.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        raise error_at(file, line, "The file is not UTF-8.", "Save it as UTF-8.") from None
    try:
        found = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as problem:
        raise _broken(problem, text, file) from None
    except RecursionError:
        raise error_at(file, 1, "The file is nested too deep.", "Reduce the nesting.") from None
    if found is None:
        raise error_at(file, 1, "The file is empty.", "Begin with `version: 1`, `models:` and `targets:`.")
    return _Reader(file, variables.environ, {*variables.named, *_env_from(found, file)}).node(found, 0)


def _env_from(root: yaml.Node, file: str) -> Iterator[str]:
    """The names in the field `env_from`, which is read before anything is substituted."""
    import yaml

    fields = root.value if isinstance(root, yaml.MappingNode) else ()
    for value in (value for key, value in fields if isinstance(key, yaml.ScalarNode) and key.value == ENV_FROM):
        items = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for item in items:
            line = item.start_mark.line + 1
            names = item.value.split(",") if isinstance(item, yaml.ScalarNode) and item.tag in PLAIN else [""]
            for name in (name.strip() for name in names):
                if not NAME.fullmatch(name):
                    raise error_at(file, line, f"{ENV_FROM} lists names of variables.", f"Write {ENV_FROM}: [NAME].")
                if SECRET.match(name.upper()):
                    hint = f"If it is not, allow it on the command line: --env-from {name}."
                    raise error_at(file, line, f"The variable {name} may be a secret.", hint)
                yield name


def _broken(problem: yaml.YAMLError, text: str, file: str) -> UsageError:
    mark = getattr(problem, "problem_mark", None) or getattr(problem, "context_mark", None)
    line = mark.line + 1 if mark else text[: getattr(problem, "position", 0)].count("\n") + 1
    why = getattr(problem, "problem", None) or getattr(problem, "reason", None) or getattr(problem, "context", None)
    hint = (
        "Check the indentation, a missing colon, or quotes around ${NAME} inside { }, on this line and the line before."
    )
    return error_at(file, line, f"This is not valid YAML: {why or 'it cannot be parsed'}.", hint)


class _Reader:
    """Converts YAML nodes to document nodes. It expands each use of an alias and enforces the limits."""

    def __init__(self, file: str, environ: Mapping[str, str], allowed: set[str]) -> None:
        self._file, self._environ, self._allowed = file, environ, allowed
        self._nodes = self._characters = 0

    def node(self, found: yaml.Node, depth: int) -> DocumentNode:
        import yaml

        line = found.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            what = "is nested too deep" if depth > MAX_DEPTH else f"has more than {MAX_NODES} parts (aliases expanded)"
            raise error_at(self._file, line, f"The file {what}.", "Shorten it, and do not nest aliases.")
        if isinstance(found, yaml.ScalarNode):
            return self._scalar(found, line)
        if found.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            raise self._tagged(found, line)
        if isinstance(found, yaml.SequenceNode):
            return DocumentNode(self._file, line, items=tuple(self.node(each, depth + 1) for each in found.value))
        return DocumentNode(self._file, line, fields=self._fields(found, depth))

    def _scalar(self, found: yaml.ScalarNode, line: int) -> DocumentNode:
        if found.tag == NULL:
            return DocumentNode(self._file, line)
        if found.tag not in PLAIN:
            raise self._tagged(found, line)
        text = self._filled(found.value, line)
        self._characters += len(text)
        if self._characters > MAX_TEXT:
            raise error_at(
                self._file, line, f"The values have more than {MAX_TEXT} characters.", "Use fewer variables."
            )
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise error_at(self._file, line, "A value contains a NUL or a lone surrogate.", "Remove it.")
        return DocumentNode(self._file, line, text=text)

    def _fields(self, found: yaml.Node, depth: int) -> dict[str, tuple[int, DocumentNode]]:
        import yaml

        fields: dict[str, tuple[int, DocumentNode]] = {}
        for key, value in found.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:merge":
                raise error_at(self._file, line, "Merge keys (<<) are not supported.", "Use `defaults:` instead.")
            if not isinstance(key, yaml.ScalarNode) or key.tag not in PLAIN:
                raise error_at(self._file, line, "The name of a field must be plain text.", "Write NAME: VALUE.")
            if key.value in fields:
                first = fields[key.value][0]
                name = key.value[:40]
                raise error_at(self._file, line, f"{name!r} is a duplicate; it is also in line {first}.", "Remove one.")
            fields[key.value] = (line, self.node(value, depth + 1))
        return fields

    def _filled(self, text: str, line: int) -> str:
        """The text after substitution of variables. `$$` is a literal `$`."""

        def fill(found: re.Match[str]) -> str:
            dollar, name, default, open_ = found.groups()
            if dollar:
                return "$"
            if open_:
                hint = "Write ${NAME} or ${NAME:-default}. For a literal ${ write $${."
                raise error_at(self._file, line, f"This variable cannot be parsed: {text[:60]!r}.", hint)
            if name not in self._allowed:
                hint = f"Write `{ENV_FROM}: [{name}]` at the top of the matrix, or give --env-from {name}."
                raise error_at(self._file, line, f"${{{name}}}: this variable is not allowed here.", hint)
            value = self._environ.get(name)
            if default is not None:
                return value or default
            if value is None:
                hint = f"Set it, or write ${{{name}:-default}}."
                raise error_at(self._file, line, f"The environment variable {name} is not set.", hint)
            return value

        return VARIABLE.sub(fill, text) if "$" in text else text

    def _tagged(self, found: yaml.Node, line: int) -> UsageError:
        return error_at(self._file, line, f"Tags such as {found.tag[:60]!r} are not supported.", "Remove the tag.")
