"""What bash completes, by the script that `mxr completion` prints."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.programs import BIN

from .stack import Host, Registry

ON = ("embedded",)
COMPLETE = """
. {script}
COMP_WORDS=(mxr {words})
COMP_CWORD={last}
_mxr_completion mxr
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def complete(mxr: Host, tmp_path: Path) -> Callable[..., list[str]]:
    """Completes the last of some words, as a user of this host."""
    script = tmp_path / "mxr.bash"
    script.write_text(mxr("completion", "bash").out)

    def run(*words: str, **environ: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        text = COMPLETE.format(script=script, words=quoted, last=len(words))
        environment = {**mxr.environ, "PATH": f"{BIN}:/usr/bin:/bin", **environ}
        done = subprocess.run(
            ["bash", "-c", text], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == ""
        return done.stdout.split()

    return run


def test_what_is_known_here(complete: Callable[..., list[str]]) -> None:
    assert complete("pre") == ["precompile"]
    assert complete("fetch", "--rocm", "7.2", "--migr") == ["--migraphx"]
    assert complete("fetch", "--precision", "int8+f") == ["int8+fp32", "int8+fp16", "int8+fp8"]
    assert complete("fetch", "--arch", "gfx90") == ["gfx906", "gfx908", "gfx90a"]
    assert complete("push", "--for", "tr") == ["triton"]
    assert complete("fetch", "--allow", "cu,pa") == ["cu,patch"]
    assert complete("cache", "pr") == ["prune"]


def test_what_the_registry_has_or_else_the_cache(
    own_registry: Callable[..., Registry],
    mxr: Host,
    model: Path,
    programs: Any,
    gpu: tuple[str, ...],
    complete: Callable[..., list[str]],
) -> None:
    registry = own_registry()
    mxr.environ |= Host(mxr.home, registry.url).environ
    hostile = model.with_name("conv;touch x;.onnx")
    shutil.copy(model, hostile)
    mxr("push", programs.gfx942, "--model", hostile, "--rocm", "7.2", "--for", "python")
    identity = mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json["id"]
    for away in (False, True):
        assert complete("show", identity[:3]) == [identity[:12]]
        assert complete("ls", "--model", "conv") == ["convrelu.onnx"]
        if not away:
            mxr("fetch", model, *gpu)
            registry.stop()
    assert complete("show", "x") == []
