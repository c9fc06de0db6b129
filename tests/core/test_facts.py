"""The table of facts: every list of facts is made from its rows, and messages name them as their reader states them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mxr import OptionArguments, RequestOptions, facts
from mxr.facts import BY_NAME, COMMAND, FACTS, HTTP, PYTHON, all_stated, command_words, stated

NAMES = [fact.name for fact in FACTS]

TRAITS = {
    *(facts.OPEN, facts.USUAL, facts.DEFAULT, facts.URI, facts.URI_IF_ALLOWED),
    *(facts.HARDWARE, facts.AXIS, facts.OPTION, facts.SHAPE),
}


def test_the_rows_are_well_formed() -> None:
    assert len(set(NAMES)) == len({fact.word for fact in FACTS}) == len(FACTS)
    for fact in FACTS:
        assert set(fact.traits.split()) <= TRAITS, fact.name
        assert fact.about.endswith(".") and bool(fact.metavar) is (fact.kind not in (facts.FLAG, facts.SWITCH))


def test_the_typed_forms_have_every_fact() -> None:
    """Editors and mypy read these two, so they are written out."""
    assert {field.name for field in dataclasses.fields(RequestOptions)} == set(NAMES)
    assert {*OptionArguments.__annotations__, "inputs"} == set(NAMES)


TRIAL = """
from mxr import facts
facts.FACTS += (facts.Fact("trial", facts.TEXT, facts.KEY, "open usual default option uri", "T", "A trial fact."),)
facts.BY_NAME = {fact.name: fact for fact in facts.FACTS}

import click
from mxr.artifact import request_defaults
from mxr.consumers import kserve
from mxr_cli.main import mxr

assert "trial" in request_defaults.NAMES
assert kserve.read_uri("mxr://sha256:ab?trial=x").words[0] == "--trial=x"
assert facts.stated("trial", "x") == "--trial x"
for name in ("fetch", "push", "key", "lock", "check"):
    command = mxr.get_command(click.Context(mxr), name)
    (option,) = [each for each in command.params if each.name == "trial"]
    assert option.opts == ["--trial"] and option.help == "A trial fact." and option.metavar == "T", name
"""


@pytest.mark.process
def test_a_new_row_is_in_every_list() -> None:
    subprocess.run([sys.executable, "-c", TRIAL], check=True, timeout=60)


@pytest.fixture(params=[COMMAND, PYTHON, HTTP])
def spoken(request: pytest.FixtureRequest) -> Iterator[str]:
    token = facts.dialect.set(request.param)
    yield request.param
    facts.dialect.reset(token)


WORDED = {
    ("num_cu", 8): ("--num-cu 8", "num_cu=8", "num_cu 8"),
    ("num_cu", None): ("--num-cu", "num_cu", "num_cu"),
    ("batch", "N"): ("--batch N", "batch=N", "batch N"),
    ("consumer", "CONSUMER"): ("--for CONSUMER", 'consumer="CONSUMER"', "consumer CONSUMER"),
    ("inputs", "x=1,3"): ("--input x=1,3", 'inputs={"x": [1, 3]}', "inputs x=1,3"),
    ("options", "a=b"): ("--option a=b", 'options={"a": "b"}', "options a=b"),
    ("allow", "cu,patch"): ("--allow cu,patch", 'allow=["cu", "patch"]', "allow cu,patch"),
    ("exact", None): ("--exact", "exact=True", "exact"),
    ("fast_math", False): ("--no-fast-math", "fast_math=False", "no fast_math"),
    ("offline", None): ("--offline", "offline=True", "offline"),
    ("registry", None): ("--registry", "settings=Settings(registry=...)", "registry"),
    ("host_file", "FILE"): ("--host FILE", 'settings=Settings(host_file="FILE")', "host_file FILE"),
    ("ort", "1.27.1"): ("--ort 1.27.1", 'consumer_options={"ort": "1.27.1"}', "ort 1.27.1"),
}


def test_a_message_names_a_fact_as_its_reader_states_it(spoken: str) -> None:
    at = (COMMAND, PYTHON, HTTP).index(spoken)
    for (name, value), words in WORDED.items():
        assert stated(name, value) == words[at]
    both = all_stated([("rocm", "7.2"), ("migraphx", "2.15")])
    assert both == ("--rocm 7.2 --migraphx 2.15", 'rocm="7.2", migraphx="2.15"', "rocm 7.2, migraphx 2.15")[at]


def test_a_command_states_every_value() -> None:
    assert command_words("env", {"A": "1", "B": "2"}) == [("--env", "A=1"), ("--env", "B=2")]
    assert command_words("allow", ("cu", "patch")) == [("--allow", "cu,patch")]
    assert command_words("exact", False) == command_words("fast_math", None) == command_words("allow", ()) == []
    assert command_words("fast_math", False) == [("--no-fast-math",)]
    assert command_words("num_cu", 8) == [(BY_NAME["num_cu"].flag, "8")]
