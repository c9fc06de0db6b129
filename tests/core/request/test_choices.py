"""Options that choose: they state open facts only, and lead to exactly the program that they stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from strategies import MODEL

from mxr.artifact.candidates import Choice
from mxr.artifact.key import Key
from mxr.artifact.target import DynamicDim
from mxr.host_facts import Host
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.request.builder import RequestOptions, gather
from mxr.request.choices import distinguishing, options_of
from mxr.request.model import ModelReference

INPUTS = (OnnxInput("x", "float32", ("N", 3)), OnnxInput("y", "float32", ("N", "L")))
SUBJECT = ModelReference(MODEL, OnnxModel(Path("m.onnx"), 0, INPUTS, (), (), 17, 8, ""))
FIXED = ModelReference(MODEL, OnnxModel(Path("m.onnx"), 0, (INPUTS[0],), (), (), 17, 8, ""))
KEY = Key(model=MODEL, kind="gpu", arch="gfx908", rocm="7.2", migraphx="2.15", inputs=(("x", (4, 3)),))


def words(choice: Choice, options: RequestOptions, subject: ModelReference = FIXED) -> str:
    built = gather(options, subject, Host())
    assert built.known.admits(choice.key)
    rows = options_of(built, choice)
    return " ".join(word for row in rows.values() for word in row)


def test_every_open_fact_is_stated() -> None:
    assert words(Choice(KEY), RequestOptions()) == (
        "--arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 4 --offload-copy --fast-math"
    )
    ref = Key(model=MODEL, kind="ref", migraphx="2.16", inputs=KEY.inputs, fast_math=False)
    assert words(Choice(ref), RequestOptions()) == "--kind ref --migraphx 2.16 --batch 4 --offload-copy --no-fast-math"
    assert words(Choice(replace(KEY, vendor="hygon", arch="gfx906")), RequestOptions()).startswith(
        "--vendor hygon --arch"
    )


def test_what_is_known_is_not_repeated() -> None:
    known = RequestOptions(arch="gfx908", rocm="7.2", migraphx="2.15", batch=4)
    assert words(Choice(KEY, consumer="driver"), known) == "--for driver"
    assert words(Choice(KEY), replace(known, fast_math=True)) == ""
    featured = Choice(KEY, sramecc="+", xnack="-", num_cu=120, chiplets=1)
    assert (
        words(featured, replace(known, consumer="python")) == "--arch gfx908:sramecc+:xnack- --num-cu 120 --chiplets 1"
    )


def test_dims_are_a_batch_where_that_says_all() -> None:
    options = RequestOptions(arch="gfx908", rocm="7.2", migraphx="2.15", consumer="python")
    two = replace(KEY, inputs=(("x", (4, 3)), ("y", (4, 16))))
    assert words(Choice(two), options, SUBJECT) == "--input x=4,3 --input y=4,16"
    half = replace(options, inputs=(("y", (4, 16)),))
    assert words(Choice(two), half, SUBJECT) == ""
    ranged = replace(KEY, inputs=(("x", (DynamicDim(1, 8, (4,)), 3)),))
    assert words(Choice(ranged), options) == "--input x=1..8@4,3"


def test_rows_show_what_differs() -> None:
    options = RequestOptions(arch="gfx908", consumer="python")
    built = gather(options, FIXED, Host())
    keys = [
        replace(KEY, migraphx=version, inputs=(("x", (size, 3)),)) for version in ("2.14", "2.15") for size in (1, 4)
    ]
    rows = distinguishing([options_of(built, Choice(key)) for key in keys])
    assert rows[0] == ("--migraphx", "2.14", "--batch", "1") and len(set(rows)) == 4
