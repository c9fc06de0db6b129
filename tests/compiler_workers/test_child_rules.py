"""The child's own rules: it runs where mxr is not, so it imports nothing of ours, in the words of Python 3.8."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import mxr_workers

HOME = Path(mxr_workers.__file__).parent
CHILD = sorted((HOME / "compiler").glob("*.py"))


@pytest.mark.parametrize("path", CHILD, ids=lambda path: path.name)
def test_it_is_python_3_8_and_imports_nothing_of_ours(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).split(".")[0])
    assert found <= set(sys.stdlib_module_names) | {"numpy", "migraphx", "onnxruntime"}
    assert "migraphx" not in found or path.name == "library.py"
    assert "onnxruntime" not in found or path.name == "session.py"


def test_one_file_of_all_workers_imports_migraphx() -> None:
    found = [path.name for path in HOME.rglob("*.py") if "import migraphx" in path.read_text()]
    assert found == ["library.py"]


def test_the_guardian_needs_the_standard_library_alone() -> None:
    tree = ast.parse((HOME / "guardian.py").read_text())
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)
