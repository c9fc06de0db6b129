"""A worker signs what it builds with a key of its own, and hosts take only that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from end_to_end.stack import Host, Registry
from end_to_end.test_trust import key
from harness.programs import run

from .conftest import REF, Worker, asked, closed, worker_environ

ON = ("embedded",)


def public_key(home: Path, *words: str) -> tuple[str, str]:
    """What `mxr-worker key` prints for this host: the key and its fingerprint."""
    home.mkdir(parents=True, exist_ok=True)
    done = run(["mxr-worker", "key", *words], env=worker_environ(home), cwd=home)
    assert done.returncode == 0, done
    return done.stdout, done.stderr.split()[-1].rstrip(".")


def enroll(registry: Registry, home: Path, pem: str, *words: str) -> Any:
    (home / "worker.pem").write_text(pem)
    return key(registry, "enroll", str(home / "worker.pem"), *words)


def test_only_what_an_enrolled_worker_signed(
    registry: Registry,
    mxr: Host,
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    programs: Any,
    convnet: Path,
    tmp_path: Path,
) -> None:
    home = tmp_path / "workers" / "one"
    pem, fingerprint = public_key(home)
    assert public_key(home) == (pem, fingerprint), "the same key again"
    (private,) = home.rglob("signing.key")
    assert private.stat().st_mode & 0o777 == 0o600
    one = worker("one").ready()
    assert one.said(f"signs with the key {fingerprint}")
    before = closed(mxr, asked(mxr, marked()))["artifact"]
    assert one.said("is not enrolled")

    said = enroll(registry, tmp_path, pem, "--name", "gpu-1")
    assert (said["id"], said["role"], said["name"]) == (fingerprint, "worker", "gpu-1") and said["endorsement"]
    model = convnet
    id = closed(mxr, asked(mxr, model))["artifact"]
    shown = mxr("show", id, "--statement").out
    assert "urn:mxr:built:v1" in shown and f"{fingerprint}  (worker, active)" in shown and "built_at" in shown
    exported = mxr("statement", "export", id, "--kind", "built", "--key", tmp_path / "built.pem", "--json").json
    assert (exported["key"], (tmp_path / "built.pem").read_text()) == (fingerprint, pem)
    assert mxr("statement", "export", before, "--kind", "built", "--json", expect=6).error["code"] == "unsigned"

    strict = host("strict")
    of_registry = next(each["id"] for each in key(registry, "ls")["keys"] if each["role"] == "registry")
    # The key of a worker is none of the registry.
    assert strict("trust", "add", "--fingerprint", fingerprint, "--json", expect=6).error["code"] == "unknown_key"
    strict("trust", "add", "--fingerprint", of_registry, "--origin", "worker")
    assert strict("fetch", model, *REF, "--json").json["id"] == id
    assert strict("fetch", model, *REF, "--offline", "--json").json["source"] == "cache"
    (row,) = strict("trust", "ls", "--json").json["registries"]
    assert row["workers"] == [fingerprint] and "(a worker)" in strict("trust", "ls").out
    assert strict("fetch", marked(), *REF, "--json", expect=6).error["code"] == "unsigned"
    # A bundle has both statements.
    mxr("export", id, "-o", "bundle.tar")
    brought = host("brought")
    brought("trust", "add", "--fingerprint", of_registry, "--origin", "worker")
    brought("import", mxr.home / "bundle.tar")
    assert brought("fetch", model, *REF, "--offline", "--json").json["id"] == id

    key(registry, "revoke", fingerprint)
    refused = strict("fetch", model, *REF, "--json", env={"MXR_MAX_AGE": "0"}, expect=6).error
    assert refused["code"] == "revoked_key"
    # It still works, and signs nothing more.
    after = closed(mxr, asked(mxr, marked(other="1")))
    assert after["state"] == "done"
    kinds = [each["kind"] for each in mxr.get(f"/v1/statements/{after['artifact']}")["items"]]
    assert kinds == ["urn:mxr:accepted:v1"]


def test_a_worker_that_shall_sign_does_not_run_without_its_key(worker: Callable[..., Worker], tmp_path: Path) -> None:
    one = worker("one", env={"MXR_WORKER_KEY_FILE": str(tmp_path / "absent.key")})
    assert one.process.wait(60) == 2 and one.said("There is no key")
    (tmp_path / "bad.key").write_text("no key")
    two = worker("two", env={"MXR_WORKER_KEY_FILE": str(tmp_path / "bad.key")})
    assert two.process.wait(60) == 65 and not two.said("no key\n")


def test_what_cannot_be_enrolled(registry: Registry, tmp_path: Path) -> None:
    def refused(text: str, *words: str) -> str:
        (tmp_path / "key.pem").write_text(text)
        command = ["mxr-registry", "key", "enroll", str(tmp_path / "key.pem"), *words, "--data", str(registry.data)]
        done = run([*command, "--json"], env=registry.environ)
        assert done.returncode != 0
        return str(json.loads(done.stdout)["error"]["code"]) if done.stdout else done.stderr

    pem, _ = public_key(tmp_path / "worker", "--set", f"worker.key_file={tmp_path / 'own.key'}")
    assert (tmp_path / "own.key").exists()
    for text in ("", "x", pem[:60], "-" * 100_000, (tmp_path / "own.key").read_text()):
        assert refused(text, "--name", "gpu-1") == "usage"
    assert refused(pem, "--name", "a\nb") == refused(pem, "--name", "") == "usage"
    (tmp_path / "worker.pem").write_text(pem)
    key(registry, "enroll", str(tmp_path / "worker.pem"), "--name", "gpu-2")
    assert refused(pem, "--name", "gpu-2") == "conflict"
