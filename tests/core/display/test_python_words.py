"""Errors of the library speak of arguments; commands to run in a shell stay commands."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from mxr.display.python_words import in_python

ROWS = {
    "Add --arch gfx908 (and --rocm, --migraphx) or --host FILE. `mxr host` shows it.": (
        'Add arch="gfx908" (and rocm, migraphx) or settings=Settings(host_file="FILE"). `mxr host` shows it.'
    ),
    "Add --arch gfx908 --rocm 7.2 --batch 8, or more.": 'Add arch="gfx908", rocm="7.2", batch=8, or more.',
    "Set --batch N, for example: --input x=1,3 --input y=1,8": (
        'Set batch=N, for example: inputs={"x": [1, 3], "y": [1, 8]}'
    ),
    "--exact and --allow cannot be used together.": "exact=True and allow cannot be used together.",
    "--tuning eager requires --allow eager,patch.": 'tuning="eager" requires allow=["eager", "patch"].',
    "Omit --no-offload-copy: --for ort implies it.": 'Omit offload_copy=False: consumer="ort" implies it.',
    "Replace it with --force, or give another --name.": "Replace it with force=True, or give another --name.",
    "Freeze it: mxr freeze MODEL --batch 1,4 -o FOLDER, and set --batch 4.": (
        "Freeze it: mxr freeze MODEL --batch 1,4 -o FOLDER, and set batch=4."
    ),
    "To accept it, use `--allow cu`. Otherwise: `mxr push FILE.mxr --rocm 7.2`": (
        'To accept it, use `allow=["cu"]`. Otherwise: `mxr push FILE.mxr --rocm 7.2`'
    ),
    "Give --ort 1.27.1, or --env MIGRAPHX_NSTREAMS=2.": (
        'Give consumer_options={"ort": "1.27.1"}, or env={"MIGRAPHX_NSTREAMS": "2"}.'
    ),
    "Check that --registry is a URL. In a trusted network: --plaintext.": (
        "Check that settings=Settings(registry=...) is a URL. In a trusted network: settings=Settings(plaintext=True)."
    ),
    "Use --on-miss wait.": "Use --on-miss wait.",
    "Nothing to do.": "Nothing to do.",
    "": "",
}


@pytest.mark.parametrize("text", ROWS)
def test_options_become_arguments(text: str) -> None:
    assert in_python(text) == ROWS[text]
    assert in_python(in_python(text)) == ROWS[text], "twice is once: functions of the library call each other"


def test_the_arguments_are_python() -> None:
    words = in_python(
        "Add --arch gfx90a:xnack- --rocm 7.2.1 --input x=1,3 --allow cu --exact --no-fast-math --batch 8."
    )
    call = re.sub(r"^Add (.*)\.$", r"fetch(\1)", words)
    found: dict[str | None, Any] = {
        each.arg: ast.literal_eval(each.value)
        for each in ast.parse(call, mode="eval").body.keywords  # type: ignore[attr-defined]
    }
    assert found == {
        "arch": "gfx90a:xnack-",
        "rocm": "7.2.1",
        "inputs": {"x": [1, 3]},
        "allow": ["cu"],
        "exact": True,
        "fast_math": False,
        "batch": 8,
    }


@pytest.mark.parametrize("piece", ["a=[", 'a="', "a={", "`", "mxr x ", "--arch ", "--arch=,", "--", "mxr x ,"])
def test_a_long_text_of_a_stranger_costs_little(piece: str) -> None:
    """A registry words some errors. Quadratic cost would take minutes here, and the suite has a time limit."""
    text = piece * (1_000_000 // len(piece))
    assert len(in_python(text)) >= len(text) // 4
