"""`import mxr` in a program of the user's, what stays unloaded, and the demo."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.scale import only_in_soak
from paths import ROOT

from .stack import PATIENCE, Host, clean_environ, real_environ

HEAVY = (
    *("fastapi", "sqlalchemy", "boto3", "botocore", "alembic", "pydantic", "uvicorn", "starlette"),
    *("migraphx", "numpy", "onnx", "urllib3", "http.client", "asyncio", "email"),
)


def test_fetch_from_a_program(
    host: Callable[..., Host], model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    program = """
import json, sys, mxr
from mxr.errors import NoSuchArtifactError
words = dict(arch="gfx908:sramecc+:xnack-", rocm="7.2", migraphx="2.15", batch=4, consumer="python")
found = mxr.fetch(sys.argv[1], **words)
copy = mxr.fetch(sys.argv[1], output=sys.argv[2] + "/", offline=True, **words)
try:
    mxr.fetch(sys.argv[1], **words | {"arch": "gfx90a"})
except NoSuchArtifactError as problem:
    nearest = problem.context["nearest"][0]["id"]
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


WARM = {
    "mxr": "entry_point errors facts settings version",
    "mxr.artifact": "attributes compile_settings field_docs key limits manifest matching model_files partial "
    "recall records request_defaults target",
    "mxr.cache": "folder partition room store usage_log",
    "mxr.consumers": "consumer python",
    "mxr.display": "progress streams text",
    "mxr.host_facts": "gpus host kfd places root toolchain",
    "mxr.onnxfile": "binding external file_types graph protobuf reader",
    "mxr.plans": "plan",
    "mxr.request": "builder defaults model",
    "mxr.configuration": "config_file file_urls proxies schema",
    "mxr.util": "codec disk doc frozen hashing",
    "mxr.workflows": "fetch preparation",
    "mxr_cli": "byte_progress main help options output",
    "mxr_cli.commands": "fetch",
    "mxr_cli.fetching": "fetch_options programs",
}
"""The modules that a hit in the cache may import, by package: every start of a pod pays for each of them."""


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
    loaded = set(json.loads(done.err.splitlines()[-1]))
    assert loaded.isdisjoint(HEAVY)
    allowed = {f"{package}.{name}".rstrip(".") for package, names in WARM.items() for name in names.split()}
    allowed |= set(WARM)
    assert sorted({name for name in loaded if name.startswith("mxr")} - allowed) == []
    loaded = set(mxr.python("import json, sys, mxr; mxr.fetch; print(json.dumps(sorted(sys.modules)))").json)
    assert "mxr" in loaded
    assert loaded.isdisjoint(HEAVY)


def demo(environ: dict[str, str]) -> str:
    """What the demo prints."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "(exit 3)" in done.stdout and "(exit 6)" in done.stdout and "(exit 69)" in done.stdout
    assert "# Done." in done.stdout
    return done.stdout


@only_in_soak
def test_the_demo_knows_the_empty_package_and_skips_the_compile(tmp_path: Path) -> None:
    (tmp_path / "site" / "migraphx").mkdir(parents=True)
    (tmp_path / "site" / "migraphx" / "__init__.py").write_text("")
    said = demo(clean_environ(tmp_path) | {"PYTHONPATH": str(tmp_path / "site"), "ROCM_PATH": str(tmp_path)})
    assert "SKIPPED: this machine has no usable migraphx module" in said and "is the placeholder package" in said
    assert "mxr-worker run" not in said


@pytest.mark.real_migraphx
def test_the_demo_ends_with_a_compile(tmp_path: Path) -> None:
    said = demo(clean_environ(tmp_path) | real_environ())
    assert "SKIPPED" not in said
    assert re.search(r"--on-miss wait(.|\n)*made by +MIGraphX 2\.(.|\n)*target +ref", said)
