"""Everything that is printed goes through `mxr.display`: no other module of the programs writes to a stream."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.rows import for_each
from paths import ROOT

FOLDERS = ("core", "registry", "compiler_workers", "cli", "migrations", "examples")

ALLOWED = {
    "core/mxr/display/streams.py": {"sys.stdout", "sys.stderr"},
    "core/mxr/display/logs.py": {"logging.StreamHandler", "logging.basicConfig", "sys.stderr"},
    # They ask on the terminal, with a question that `printable` made.
    "cli/mxr_cli/output.py": {"click.confirm"},
    "cli/mxr_cli/commands/login.py": {"click.prompt"},
    # The messages of the worker on this host, which is a program of its own.
    "cli/mxr_cli/compile_on_miss.py": {"sys.stderr.fileno"},
    # Children with pipes: their parent reads what they write, and never prints it without `mxr.display`.
    "core/mxr/consumers/ort/prediction/child.py": {"sys.stdout"},
    "compiler_workers/mxr_workers/supervisor.py": {"os.write"},
    "compiler_workers/mxr_workers/compiler/__main__.py": {"sys.stdout", "sys.stderr", "traceback.print_exc"},
    # They write to files.
    "core/mxr/cache/usage_log.py": {"os.write"},
    "core/mxr/util/hashing.py": {"os.write"},
    "registry/mxr_registry/storage/local.py": {"os.write"},
}
HARMLESS = {"sys.stdout.isatty", "sys.stderr.isatty"}
NAMES = {"print", "pprint", "input", "breakpoint"}
CLICK = {"echo", "secho", "echo_via_pager", "confirm", "prompt", "progressbar", "edit", "get_text_stream", "pause"}
CALLS = {f"click.{name}" for name in CLICK} | {
    *("os.write", "logging.StreamHandler", "logging.basicConfig", "logging.lastResort", "traceback.print_exc"),
    *("traceback.print_exception", "traceback.print_stack", "traceback.print_last", "sys.stdout", "sys.stderr"),
    *("sys.__stdout__", "sys.__stderr__", "faulthandler.enable", "pprint.pprint"),
}


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute or a name, else nothing."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if isinstance(node, ast.Attribute) and inner else ""


def prints(source: str) -> Iterator[str]:
    """What a source uses that can write to a terminal or a log."""
    tree = ast.parse(source)
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and dotted(node) in HARMLESS]
    skipped = {id(node.value) for node in whole}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in skipped:
            name = dotted(node)
            if name in CALLS or name == "sys.stderr.fileno" or name.endswith("exception.show"):
                yield name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
            yield node.func.id
        elif isinstance(node, ast.ImportFrom) and node.module in ("click", "sys", "traceback", "pprint"):
            names = {f"{node.module}.{each.name}" for each in node.names}
            yield from names & CALLS


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_other_module_prints(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        found = set(prints(path.read_text()))
        allowed = ALLOWED.get(name, set())
        assert found <= allowed | ({"sys.stderr"} if "sys.stderr.fileno" in allowed else set()), name
        assert not allowed or found, f"{name} needs no exception any more"


@for_each(
    [
        "print(1)",
        "import click\nclick.echo(name)",
        "from click import echo",
        "import sys\nsys.stdout.write(x)",
        "import sys\nprinter = sys.stderr",
        "import os\nos.write(2, b'x')",
        "import traceback\ntraceback.print_exc()",
        "import logging\nlogging.basicConfig()",
    ]
)
def test_the_rule_sees_every_way_to_print(source: str) -> None:
    assert set(prints(source))
    assert not set(prints("import sys\nif sys.stdout.isatty(): pass"))


def test_exceptions_exist() -> None:
    assert all((ROOT / name).is_file() for name in ALLOWED) and Path(ROOT, "examples").is_dir()
