"""A namespace has a rule and request defaults, which an operator sets beside the running registry."""

from __future__ import annotations

import os
from typing import Any

import pytest
from harness.programs import command
from harness.programs import run as run_program
from registry.registry_client import RegistryUnderTest

NONE = {"rocm": None, "migraphx": None, "consumer": None, "batch": None, "allow": None}


def namespace(server: RegistryUnderTest, *words: object, expect: int = 0) -> str:
    done = run_program(
        command("mxr-registry", "namespace", *words, "--data", str(server.data)), env=os.environ | server.environ
    )
    assert done.returncode == expect, done
    return done.stderr if expect else done.stdout


def defaults(server: RegistryUnderTest) -> dict[str, Any]:
    found: dict[str, Any] = server.ok("GET", "/v1/defaults")
    return found


def test_defaults_are_set_one_by_one(server: RegistryUnderTest) -> None:
    assert defaults(server) == NONE
    line = namespace(server, "set", "default", "--rocm", "7.2", "--for", "triton", "--batch", 8)
    assert line == "default: serve auto, rocm 7.2, consumer triton, batch 8\n"
    assert defaults(server) == {**NONE, "rocm": "7.2", "consumer": "triton", "batch": 8}
    # What is left out stays.
    namespace(server, "set", "default", "--serve", "built", "--migraphx", "2.15.0")
    namespace(server, "set", "default", "--batch", "none", "--for", "none")
    assert defaults(server) == {**NONE, "rocm": "7.2", "migraphx": "2.15.0"}
    assert namespace(server, "ls") == "default: serve built, rocm 7.2, migraphx 2.15.0\n"
    namespace(server, "set", "default", "--rocm", "none", "--migraphx", "none", "--serve", "auto", "--allow", "rocm")
    assert defaults(server) == {**NONE, "allow": "rocm"}
    namespace(server, "set", "default", "--allow", "none")
    assert defaults(server) == NONE and namespace(server, "ls") == "default: serve auto\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Nothing to set is given"),
        (("--rocm", "seven"), "rocm must be a version such as 7.2"),
        (("--batch", "0"), "batch must be a batch size"),
        (("--batch", "1,8"), "batch"),
        (("--batch", "9" * 20), "batch"),
        (("--for", "tritn"), "Did you mean triton?"),
        (("--serve", "all"), "serve"),
    ],
    ids=str,
)
def test_what_is_invalid_changes_nothing(server: RegistryUnderTest, words: tuple[str, ...], said: str) -> None:
    before = defaults(server)
    assert said in namespace(server, "set", "default", *words, expect=2)
    assert defaults(server) == before


def test_a_namespace_that_does_not_exist(server: RegistryUnderTest) -> None:
    assert "There is no namespace" in namespace(server, "set", "team", "--rocm", "7.2", expect=3)
