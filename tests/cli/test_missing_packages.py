"""Programs that were installed without their packages say what to install."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from harness.programs import BIN

from mxr.errors import missing_package

WITHOUT = """
import os, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ.get("WITHOUT", "").split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


def run(tmp_path: Path, words: list[str], without: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program in an environment that lacks a package."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MXR_")}
    environ |= {"PYTHONPATH": str(tmp_path), "WITHOUT": without, "MXR_CACHE_DIR": str(tmp_path / "cache"), **more}
    return subprocess.run(
        [BIN / words[0], *words[1:]], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "without", "database", "install"),
    [
        (["mxr-registry", "serve", "--port", "0", "--data", "data"], "sqlalchemy", "", "'.[registry]'"),
        (["mxr-registry", "sweep", "--data", "."], "boto3 sqlalchemy", "", "'.[registry]'"),
        (["mxr-registry", "serve", "--port", "0"], "psycopg", "postgresql://a@127.0.0.1:9/b", "'.[registry]'"),
        (["mxr", "plan", "matrix.yaml"], "yaml", "", "."),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    tmp_path: Path, words: list[str], without: str, database: str, install: str
) -> None:
    (tmp_path / "registry.db").touch()
    (tmp_path / "matrix.yaml").write_text("models: []\n")
    done = run(tmp_path, words, without, **({"MXR_DATABASE_URL": database} if database else {}))
    assert done.returncode == 2, done.stderr
    assert f"{words[0]} needs the Python package {without.split()[-1]}, which is not installed." in done.stderr
    assert f"`pip install {install}`" in done.stderr
    assert "bug" not in done.stderr and "Traceback" not in done.stderr


def test_a_missing_module_of_this_project_is_a_bug() -> None:
    for name in ("mxr", "mxr.program", "mxr_registry.app", None):
        assert missing_package("mxr-worker", ModuleNotFoundError("x", name=name), "workers") is None
    found = missing_package("mxr-worker", ModuleNotFoundError("x", name="xxhash._x"), "workers")
    assert found is not None and "package xxhash" in found.message and "'.[workers]'" in found.hint
