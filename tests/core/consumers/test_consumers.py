"""The consumers: their compile flags, and the file that each reads."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from harness.rows import for_each
from paths import ROOT
from strategies import GPU

from mxr import consumers
from mxr.artifact.key import Key
from mxr.artifact.target import DynamicDim
from mxr.errors import UsageError


@for_each(
    [
        ("python", True, True),
        ("amdinfer", True, True),
        ("amdinfer-repo", True, True),
        ("triton", True, True),
        ("kserve", True, True),
        ("driver", False, True),
        ("ort", False, False),
        ("epcontext", False, False),
    ]
)
def test_flags(name: str, offload_copy: bool, fast_math: bool) -> None:
    found = consumers.find_consumer(name)
    assert (found.name, found.offload_copy, found.fast_math) == (name, offload_copy, fast_math)
    assert found.summary and found.source


def test_the_list_is_complete_and_python_is_the_default() -> None:
    rows = {"python", "driver", "amdinfer", "amdinfer-repo", "ort", "epcontext", "triton", "kserve"}
    assert set(consumers.CONSUMERS) == rows
    assert consumers.DEFAULT is consumers.find_consumer("python")


@pytest.mark.parametrize("name", ["", "Python", "torch", "python "])
def test_an_unknown_consumer(name: str) -> None:
    with pytest.raises(UsageError, match="no consumer") as caught:
        consumers.find_consumer(name)
    assert "amdinfer" in caught.value.hint and "mxr consumers" in caught.value.hint


@pytest.mark.parametrize("name", ["python", "driver"])
def test_the_plain_name(name: str) -> None:
    assert consumers.find_consumer(name).file_name("resnet50", GPU) == "resnet50.mxr"


def test_ort_reads_no_plain_file() -> None:
    with pytest.raises(UsageError, match="ort does not read plain files") as caught:
        consumers.find_consumer("ort").file_name("resnet50", GPU)
    assert "-o FOLDER/" in caught.value.hint


AMDINFER = consumers.find_consumer("amdinfer")


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ((("x", (8, 3, 224, 224)),), "m_b8.mxr"),
        ((("x", (64,)), ("y", (64, 128))), "m_b64.mxr"),
        ((("x", (8, 3)), ("scale", ())), "m_b8.mxr"),
    ],
)
def test_the_file_name_for_amdinfer_has_the_batch(inputs: tuple[tuple[str, tuple[int, ...]], ...], name: str) -> None:
    assert AMDINFER.file_name("m", replace(GPU, inputs=inputs)) == name


@pytest.mark.parametrize(
    "key",
    [
        replace(GPU, inputs=(("x", (8, 3)), ("y", (1, 3)))),
        replace(GPU, inputs=(("x", (DynamicDim(1, 8), 3)),)),
        replace(GPU, inputs=(("x", ()),)),
        replace(GPU, inputs=()),
        replace(GPU, offload_copy=False),
    ],
    ids=["two batches", "an open batch", "scalars", "no inputs", "without offload_copy"],
)
def test_what_amdinfer_cannot_use(key: Key) -> None:
    with pytest.raises(UsageError, match="amdinfer needs") as caught:
        AMDINFER.check("m", key)
    assert caught.value.hint


def test_each_has_a_page_that_names_it() -> None:
    for name, consumer in consumers.CONSUMERS.items():
        page = (ROOT / consumer.page).read_text()
        assert re.search(rf"--for {name}\b|for={name}\b", page), consumer.page
