"""docs/security.md: every claim names at least one test, and every named test exists."""

from __future__ import annotations

import ast
import functools
import re

from harness.rows import for_each
from paths import ROOT

PAGE = ROOT / "docs" / "security.md"
ROW = re.compile(r"^\|(?P<claim>.*)\|(?P<tests>[^|]*)\|$", re.MULTILINE)
NAME = re.compile(r"`((?:tests/[\w/]+\.py)?(?:::\w+)*)`")


def claims() -> list[tuple[str, str]]:
    """The rows of the tables whose last column is "test": (claim, tests)."""
    found, inside = [], False
    for line in PAGE.read_text().splitlines():
        row = ROW.fullmatch(line)
        if row is None:
            inside = False
        elif row["tests"].strip() == "test":
            inside = True
        elif inside and set(row["tests"]) - set(" -"):
            found.append((row["claim"].strip(), row["tests"].strip()))
    return found


CLAIMS = claims()


@functools.cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file, with their class."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"::{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names.add(f"::{node.name}")
    return frozenset(names)


def test_there_are_claims() -> None:
    assert len(CLAIMS) > 20


@for_each(CLAIMS)
def test_every_claim_names_tests_that_exist(claim: str, named: str) -> None:
    path, found = "", 0
    for each in NAME.findall(named):
        file, sign, name = each.partition("::")
        path = file or path
        assert path, f"{each} names no file"
        assert (ROOT / path).is_file(), path
        if sign:
            assert f"::{name}" in functions_of(path), f"{path} has no test {name}"
        found += 1
    assert found, f"no test is named for: {claim}"
