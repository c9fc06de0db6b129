"""Rules for the child's source files: they run without mxr, in Python 3.8 and later."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from harness.rows import for_each

import mxr_workers

HOME = Path(mxr_workers.__file__).parent
CHILD = sorted((HOME / "compiler").glob("*.py"))


@for_each(CHILD)
def test_a_file_of_the_child_is_python_3_8_and_imports_nothing_of_mxr(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).split(".")[0])
    assert found <= set(sys.stdlib_module_names) | {"numpy", "migraphx", "onnxruntime"}
    assert "migraphx" not in found or path.name == "migraphx_module.py"
    assert "onnxruntime" not in found or path.name == "ort_session.py"


def test_one_file_of_the_workers_imports_migraphx() -> None:
    found = [path.name for path in HOME.rglob("*.py") if "import migraphx" in path.read_text()]
    assert found == ["migraphx_module.py"]


def test_the_supervisor_imports_only_the_standard_library() -> None:
    tree = ast.parse((HOME / "supervisor.py").read_text())
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)
