"""docs/trust.md, as written: a statement is exported and verified by who has no mxr."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run
from paths import ROOT

from .stack import Host

ON = ("embedded",)

PAGE = ROOT / "docs" / "trust.md"


@pytest.fixture
def verifier(tmp_path: Path) -> Path:
    """The ten lines of the page."""
    (lines,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in lines.splitlines() if line and "import" not in line]) <= 10
    path = tmp_path / "verify.py"
    path.write_text(lines)
    return path


def test_a_statement_is_verified_without_mxr(
    mxr: Host, published: dict[str, Any], programs: Any, verifier: Path, tmp_path: Path
) -> None:
    mxr("statement", "export", published["id"], "-o", tmp_path / "statement.json", "--key", tmp_path / "registry.pem")
    statement, program = tmp_path / "statement.json", tmp_path / "model.mxr"
    program.write_bytes(programs.gfx908.read_bytes())
    # -I: nothing of this checkout or of the environment.
    alone = [sys.executable, "-I", str(verifier)]
    done = run(alone, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "accepted as model.mxr\n"), done
    for path, at in ((program, 500), (statement, 30), (tmp_path / "registry.pem", 60)):
        kept = path.read_bytes()
        path.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
        assert run(alone, cwd=tmp_path).returncode != 0, path
        path.write_bytes(kept)
    assert run(alone, cwd=tmp_path).returncode == 0


def test_the_statement_is_shown_to_people(mxr: Host, published: dict[str, Any]) -> None:
    shown = mxr("show", published["id"], "--statement").out
    assert "urn:mxr:accepted:v1" in shown and "(active)" in shown and published["sha256"] in shown
    said = mxr("statement", "export", published["id"], "--json").json
    assert said["key"] in shown and set(said["envelope"]) == {"payload", "payloadType", "signatures"}
    (mxr.home / "model.onnx").write_bytes(b"precious")
    mxr("statement", "export", published["id"], "-o", "model.onnx", expect=7)
    assert (mxr.home / "model.onnx").read_bytes() == b"precious"
