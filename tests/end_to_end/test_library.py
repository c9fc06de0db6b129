"""`import mxr` in a program of the user's, what stays unloaded, and the demo."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .stack import PATIENCE, Host, clean_environ

HEAVY = (
    *("fastapi", "sqlalchemy", "boto3", "botocore", "alembic", "pydantic", "uvicorn", "starlette"),
    *("migraphx", "numpy", "onnx", "urllib3", "http.client", "asyncio", "email"),
)


def test_fetch_from_a_program(
    host: Callable[..., Host], model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    program = """
import json, sys, mxr
from mxr.errors import NoSuchArtifact
words = dict(arch="gfx908:sramecc+:xnack-", rocm="7.2", migraphx="2.15", batch=4, consumer="python")
found = mxr.fetch(sys.argv[1], **words)
copy = mxr.fetch(sys.argv[1], output=sys.argv[2] + "/", offline=True, **words)
try:
    mxr.fetch(sys.argv[1], **words | {"arch": "gfx90a"})
except NoSuchArtifact as problem:
    nearest = problem.detail["nearest"][0]["id"]
try:
    mxr.fetch(sys.argv[1], **words | {"batch": 0})
except mxr.MxrError as problem:
    wrong = problem.exit
print(json.dumps([str(found.path), found.source, str(copy.path), copy.source, nearest, wrong]))
"""
    path, source, copy, again, nearest, wrong = host("app").python(program, model, tmp_path / "out").json
    assert (source, again, nearest, wrong) == ("registry", "cache", published["id"], 2)
    assert copy == str(tmp_path / "out" / "convrelu.mxr")
    assert Path(copy).read_bytes() == Path(path).read_bytes()


def test_what_is_not_needed_is_not_loaded(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    mxr("fetch", model, *gpu)
    program = """
import json, sys
sys.argv = ["mxr", *sys.argv[1:]]
from mxr_cli.main import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
json.dump(sorted(sys.modules), sys.stderr)
"""
    import json

    done = mxr.python(program, "fetch", model, *gpu, "--json")
    assert done.json["source"] == "cache"
    assert set(json.loads(done.err.splitlines()[-1])).isdisjoint(HEAVY)
    loaded = set(mxr.python("import json, sys, mxr; mxr.fetch; print(json.dumps(sorted(sys.modules)))").json)
    assert "mxr" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_demo_runs(tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "examples" / "demo.py"
    done = subprocess.run(
        [sys.executable, demo],
        env=clean_environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "(exit 3)" in done.stdout and "(exit 6)" in done.stdout and "(exit 69)" in done.stdout
    assert "# Done." in done.stdout
