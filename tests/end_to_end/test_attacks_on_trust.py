"""Who requires signatures is attacked: by old bundles, copied caches, wrong clocks, stolen tokens, large texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.clocks import wrong_by

from .stack import Host, Registry
from .test_trust import fleet, forget, key

__all__ = ["fleet"]

ON = ("embedded",)

Fleet = tuple[Registry, Host, str]
Hosts = Callable[..., Host]
WHY = "wrong results"


def trusting(host: Hosts, fleet: Fleet, name: str, *words: str) -> Host:
    """A host that requires signatures."""
    registry, _, fingerprint = fleet
    found = host(name, registry.url)
    found("trust", "add", "--fingerprint", fingerprint, *words)
    return found


def test_a_bundle_from_before_the_recall_takes_nothing_back(
    fleet: Fleet, host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    _registry, mxr, _ = fleet
    id = mxr("fetch", model, *gpu, "--json").json["id"]
    mxr("yank", "ab" * 32, "--reason", "so that there is a list")
    mxr("export", id, "-o", "before.tar")
    mxr("quarantine", id, "--reason", WHY)
    mxr("unyank", "ab" * 32)
    aware, late = trusting(host, fleet, "aware"), trusting(host, fleet, "late")
    # It hears of the quarantine by its number, with another question.
    assert aware("fetch", model, *gpu, "--json", expect=3).error["context"]["reason"] == "recalled"
    for _ in range(2):
        aware("import", mxr.home / "before.tar")
        assert aware("fetch", model, *gpu, "--offline", "--json", expect=6).error["code"] == "recalled"
    # Who knows the bundle only gets what it says, until its next contact.
    late("import", mxr.home / "before.tar")
    assert late("fetch", model, *gpu, "--offline", "--json").json["id"] == id
    late("fetch", model, *gpu, env={"MXR_MAX_AGE": "0"}, expect=3)
    late("import", mxr.home / "before.tar")
    assert late("fetch", model, *gpu, "--offline", "--json", expect=6).error["code"] == "recalled"


def test_a_cache_of_somebody_else_proves_nothing(
    fleet: Fleet, host: Hosts, model: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    """A copy is as good as its statements; what its user has verified stays with that user."""
    _registry, _mxr, _ = fleet
    other, mine, forged = (trusting(host, fleet, name) for name in ("other", "mine", "forged"))
    found = other("fetch", model, *gpu, "--json").json
    for each in (mine, forged):
        shutil.copytree(other.cache, each.cache, dirs_exist_ok=True)
    assert mine("fetch", model, *gpu, "--offline", "--json").json["source"] == "cache"
    # Without the statements, with those of another program, and as a record of another program.
    (statements,) = forged.cache.rglob("statements/*.json")
    kept = statements.read_bytes()
    (record,) = [path for path in forged.cache.rglob("artifacts/*/*.json") if found["id"] in path.name]
    said = record.read_text()
    for spoil in (
        lambda: statements.unlink(),
        lambda: statements.write_text(json.dumps({"envelopes": []})),
        lambda: statements.write_bytes(b"[" * 10_000_000),
        lambda: statements.write_text(
            json.dumps({"envelopes": [json.loads(kept)["envelopes"][0] | {"x": "y" * 10**7}]})
        ),
        lambda: record.write_text(said.replace('"sramecc":"+"', '"sramecc":"any"')),
    ):
        spoil()
        refused = forged("fetch", model, *gpu, "--offline", "--json", expect=6).error
        assert refused["code"] in ("unsigned", "other_record"), refused
        statements.write_bytes(kept)
        record.write_text(said)
    forged("fetch", model, *gpu, "--offline")
    forget(forged)
    forged("fetch", model, *gpu, "--offline")


@pytest.mark.parametrize("clock", ["+1d", "-1d"])
def test_a_clock_a_day_wrong_stops_nobody(
    fleet: Fleet, host: Hosts, model: Path, gpu: tuple[str, ...], clock: str
) -> None:
    registry, mxr, _ = fleet
    mxr("yank", "ab" * 32, "--reason", "so that there is a list")
    key(registry, "rotate")
    wrong = trusting(host, fleet, "wrong")
    for words in ((), ("--offline",), ("--refresh",)):
        wrong("fetch", model, *gpu, *words, env=wrong_by(clock))
    # A clock that is wrong by more than the list lives stops a host that requires signatures, and says so.
    refused = wrong("fetch", model, *gpu, "--offline", "--json", env=wrong_by("+40d"), expect=6).error
    assert refused["code"] == "untrusted" and "clock of this host" in refused["hint"]
    wrong("fetch", model, *gpu, "--offline")


def test_a_stolen_token_to_publish_passes_for_no_worker(
    fleet: Fleet, host: Hosts, model: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    """The registry serves what was pushed, too, and this host takes only what was built."""
    registry, _mxr, _ = fleet
    made = registry.ask("POST", "/v1/tokens", {"name": "ci", "scopes": ["publish", "fetch"]}).json()
    thief = host("thief", registry.url)
    thief.environ["MXR_TOKEN"] = made["secret"]
    said = ("--model", model, "--rocm", "7.2", "--for", "python", "--json")
    id = thief("push", programs.gfx908, *said).json["id"]
    strict = trusting(host, fleet, "strict", "--origin", "built")
    assert strict("fetch", model, *gpu, "--json", expect=6).error["code"] == "other_record"
    for words in (("promote", id), ("tag", "prod", "mxr.lock"), ("statement", "import", id, "own.json")):
        thief("lock", model, *gpu)
        (thief.home / "own.json").write_text(
            json.dumps(thief.get(f"/v1/statements/{id}")["items"][0]["envelope"] | {"signatures": [{"sig": "AAAA"}]})
        )
        thief(*words, expect=7)
    assert strict("fetch", model, *gpu, "--json", expect=6).error["code"] == "other_record"


def test_ten_megabytes_where_a_rule_should_be(fleet: Fleet, host: Hosts, model: Path, gpu: tuple[str, ...]) -> None:
    strict = trusting(host, fleet, "strict")
    file = next(strict.home.rglob("trust.json"))
    for text in ("[" * 10_000_000, json.dumps({"x": "y" * 10_000_000})):
        file.write_text(text)
        assert strict("fetch", model, *gpu, expect=2).err.count("\n") < 5
