"""The rules of docs/decisions/0011-code-layout.md that a type checker and the import contracts cannot hold."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

import pytest
from paths import ROOT

import mxr

PACKAGES = ("core", "registry", "compiler_workers", "cli", "migrations")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text())


def test_no_module_hides_a_public_function() -> None:
    """Importing `mxr.fetch` as a module would replace the function `mxr.fetch` in the package."""
    children = {path.stem for path in (ROOT / "core" / "mxr").iterdir() if path.suffix in ("", ".py")}
    assert "api" in children
    functions = {name for name in mxr.__all__ if name.islower()} | {"fetch", "load", "push", "check", "key", "host"}
    assert not children & (functions | {"lock", "explain", "precompile"})


def test_util_has_five_modules() -> None:
    names = {path.stem for path in (ROOT / "core" / "mxr" / "util").glob("*.py")} - {"__init__"}
    assert names == {"codec", "doc", "frozen", "disk", "hashing"}


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


@pytest.mark.parametrize("folder", ["core/mxr", "registry/mxr_registry"])
def test_every_folder_and_module_states_its_purpose_in_its_first_line(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        docstring = ast.get_docstring(tree(path))
        assert docstring, path
        assert re.match(r"\S.{15,}", docstring.partition("\n")[0]), path


def test_the_map_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for package in ("core/mxr", "registry/mxr_registry"):
        for path in sorted((ROOT / package).iterdir()):
            if path.is_dir() and (path / "__init__.py").exists():
                assert f"`{path.relative_to(ROOT)}/`" in page, path


def test_the_rules_would_be_broken_by_a_module_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "fetch.py").write_text("")
    assert {path.stem for path in tmp_path.iterdir()} & set(mxr.__all__)
