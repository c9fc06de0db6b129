"""The hints of a miss: the client words the commands, whatever a registry sends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from strategies import GPU

from mxr.artifact.attributes import Constraints, Request
from mxr.client.hints import push_command, with_commands
from mxr.errors import NoSuchArtifactError

REQUEST = Request(
    replace(GPU, arch="gfx942", precision=("fp16",), env=(("MIGRAPHX_DISABLE_MLIR", "1"),)),
    Constraints(num_cu=304, xnack="-", rocm_patch="7.2.1", tuning="exhaustive"),
)


def hint_of(**context: Any) -> str:
    return with_commands(NoSuchArtifactError("none", hint="of the registry", context=context), REQUEST).hint


def test_the_command_that_publishes_the_program() -> None:
    command = push_command(REQUEST)
    assert command.startswith("mxr push FILE.mxr --model MODEL.onnx --arch gfx942:xnack- --num-cu 304 --rocm 7.2.1 ")
    for words in ("--input x=", "--precision fp16", "--env MIGRAPHX_DISABLE_MLIR=1", "--tuning exhaustive"):
        assert words in command
    assert hint_of() == f"Compile the program and publish it: `{command}`"
    ref = Request(replace(GPU, kind="ref", vendor=None, arch=None, rocm=None))
    assert "--kind ref" in push_command(ref) and "--rocm" not in push_command(ref)


@pytest.mark.parametrize(
    ("accept", "words"),
    [
        ({"id": "ab" * 32, "allow": ["cu", "patch"]}, "To accept artifact abababababab, use `--allow cu,patch`."),
        ({"id": "ab" * 32, "exact": False}, "To accept artifact abababababab, omit --exact."),
    ],
)
def test_the_option_that_accepts_a_near_artifact(accept: dict[str, Any], words: str) -> None:
    assert hint_of(accept=accept).startswith(f"{words} Otherwise compile the program")


@pytest.mark.parametrize(
    "accept", [None, 7, [], {}, {"id": "x", "allow": "cu"}, {"id": "x", "allow": ["rm -rf ~"]}, {"allow": [["cu"]]}]
)
def test_what_a_lying_registry_sends_is_no_option(accept: Any) -> None:
    assert hint_of(accept=accept).startswith("Compile the program")


def test_what_a_namespace_excludes_keeps_its_hint() -> None:
    assert hint_of(serve={"rule": "built"}) == "of the registry"
