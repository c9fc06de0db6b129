"""docs/trust.md, as written: a statement is exported and verified by who has no mxr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run
from paths import ROOT
from registry.artifacts.test_imported_statements import sigstore

from .stack import Host, Registry

ON = ("embedded",)

Hosts = Callable[..., Host]
PAGE = ROOT / "docs" / "trust.md"


@pytest.fixture
def verifier(tmp_path: Path) -> Path:
    """The ten lines of the page."""
    (lines,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in lines.splitlines() if line and "import" not in line]) <= 10
    path = tmp_path / "verify.py"
    path.write_text(lines)
    return path


def test_a_statement_is_verified_without_mxr(
    mxr: Host, published: dict[str, Any], programs: Any, verifier: Path, tmp_path: Path
) -> None:
    mxr("statement", "export", published["id"], "-o", tmp_path / "statement.json", "--key", tmp_path / "registry.pem")
    statement, program = tmp_path / "statement.json", tmp_path / "model.mxr"
    program.write_bytes(programs.gfx908.read_bytes())
    # -I: nothing of this checkout or of the environment.
    alone = [sys.executable, "-I", str(verifier)]
    done = run(alone, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "accepted as model.mxr\n"), done
    for path, at in ((program, 500), (statement, 30), (tmp_path / "registry.pem", 60)):
        kept = path.read_bytes()
        path.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
        assert run(alone, cwd=tmp_path).returncode != 0, path
        path.write_bytes(kept)
    assert run(alone, cwd=tmp_path).returncode == 0


def test_the_statement_is_shown_to_people(mxr: Host, published: dict[str, Any]) -> None:
    shown = mxr("show", published["id"], "--statement").out
    assert "urn:mxr:accepted:v1" in shown and "(registry, active)" in shown and published["sha256"] in shown
    said = mxr("statement", "export", published["id"], "--json").json
    assert said["key"] in shown and set(said["envelope"]) == {"payload", "payloadType", "signatures"}
    (mxr.home / "model.onnx").write_bytes(b"precious")
    mxr("statement", "export", published["id"], "-o", "model.onnx", expect=7)
    assert (mxr.home / "model.onnx").read_bytes() == b"precious"


def forget(host: Host) -> None:
    """The host no longer knows what it has verified."""
    found = [path for path in host.home.rglob("proven/*/*") if path.is_file()]
    assert found
    for path in found:
        path.unlink()


def sql(registry: Registry, text: str) -> None:
    """Run a statement behind the registry's back."""
    with closing(sqlite3.connect(registry.data / "registry.db", timeout=30)) as rows, rows:
        rows.execute("PRAGMA foreign_keys=ON")
        rows.execute(text)


def key(registry: Registry, *words: str) -> Any:
    """The document of `mxr-registry key`, run beside a registry."""
    done = run(["mxr-registry", "key", *words, "--data", str(registry.data), "--json"], env=registry.environ)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.fixture
def fleet(own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Any) -> tuple[Registry, Host, str]:
    """A registry with one program, who published it, and the fingerprint of its key."""
    registry = own_registry()
    mxr = host("publisher", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    (only,) = key(registry, "ls")["keys"]
    return registry, mxr, only["id"]


def test_signatures_are_required_from_registry_cache_lock_and_bundle(
    fleet: tuple[Registry, Host, str], host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    registry, mxr, fingerprint = fleet
    mxr("lock", model, *gpu)
    mxr("export", "mxr.lock", "-o", "bundle.tar")
    fresh, cached, brought, unsigned = (host(name, registry.url) for name in ("fresh", "cached", "brought", "unsigned"))
    cached("fetch", model, *gpu)
    for each in (fresh, cached, brought, unsigned):
        assert each("trust", "add", "--fingerprint", fingerprint, "--json").json["key"] == fingerprint
    (row,) = fresh("trust", "ls", "--json").json["registries"]
    assert (row["registry"], row["keys"]) == (registry.url, {fingerprint: "active"})
    for each in (fresh, cached):
        each("fetch", model, *gpu)
    brought("import", mxr.home / "bundle.tar", "--lock", "mxr.lock")
    brought("verify")
    registry.stop()
    # No network from here on.
    for each in (fresh, cached, brought):
        assert each("fetch", model, *gpu, "--offline", "--json").json["source"] == "cache"
    brought("fetch", "--locked", "--offline", "-o", "out/")
    for each in (fresh, brought):
        # The memory of what was verified is this user's own; without it, it is verified again.
        forget(each)
        each("fetch", model, *gpu, "--offline")
    for path in [*fresh.cache.rglob("statements/*.json"), *brought.cache.rglob("statements/*.json")]:
        text = path.read_text()
        payload = re.search(r'"payload":"([^"]+)"', text)
        assert payload
        at = payload.start(1) + 200
        path.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
    for each in (fresh, brought):
        each("fetch", model, *gpu, "--offline")
        forget(each)
        refused = each("fetch", model, *gpu, "--offline", "--json", expect=6).error
        assert refused["code"] in ("bad_signature", "other_record"), refused
    brought("fetch", "--locked", "--offline", expect=6)


def test_what_nobody_signed_is_refused(
    fleet: tuple[Registry, Host, str], host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    """Rows that came into the database by another way than a publication."""
    registry, _, fingerprint = fleet
    strict, lax = host("strict", registry.url), host("lax", registry.url)
    strict("trust", "add", "--fingerprint", fingerprint)
    sql(registry, "DELETE FROM statements")
    lax("fetch", model, *gpu)
    refused = strict("fetch", model, *gpu, "-o", "model.mxr", "--json", expect=6).error
    assert refused["code"] == "unsigned" and not (strict.home / "model.mxr").exists()
    assert strict.held() == [], "nothing was downloaded for it"
    assert key(registry, "resign") == {"signed": 1}
    strict("fetch", model, *gpu, "-o", "model.mxr")
    # What a registry changes behind the back of its records.
    sql(
        registry,
        'UPDATE artifacts SET attributes_json = replace(attributes_json, \'"sramecc":"+"\', \'"sramecc":"any"\')',
    )
    other = host("other", registry.url)
    other("trust", "add", "--fingerprint", fingerprint)
    assert other("fetch", model, *gpu, "--json", expect=6).error["code"] == "other_record"


def test_a_host_follows_a_rotation_and_no_key_that_nobody_endorsed(
    fleet: tuple[Registry, Host, str], host: Hosts, model: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    registry, mxr, fingerprint = fleet
    strict = host("strict", registry.url)
    strict("trust", "add", "--fingerprint", fingerprint)
    strict("fetch", model, *gpu)
    made = key(registry, "rotate")["id"]
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--num-cu", "120", "--amend")
    strict("fetch", model, *gpu, "--refresh")
    (row,) = strict("trust", "ls", "--json").json["registries"]
    assert row["keys"] == {fingerprint: "retired", made: "active"}
    # A stranger's key is not followed, whoever lists it.
    third = key(registry, "create", "--out", str(registry.data / "third.key"))["id"]
    sql(registry, f"UPDATE signing_keys SET endorsement_json = NULL WHERE id = '{third}'")
    (registry.data / "third.key").replace(registry.data / "signing.key")
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--num-cu", "104", "--amend")
    fresh = host("fresh", registry.url)
    fresh("trust", "add", "--fingerprint", fingerprint)
    sql(registry, f"DELETE FROM statements WHERE key != '{third}'")
    assert fresh("fetch", model, *gpu, "--json", expect=6).error["code"] == "unknown_key"


def test_what_others_signed_travels_and_proves_nothing(
    fleet: tuple[Registry, Host, str],
    own_registry: Callable[..., Registry],
    host: Hosts,
    model: Path,
    gpu: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """A bundle of sigstore, and what one registry signed, in another one."""
    _, mxr, fingerprint = fleet
    artifact = mxr("fetch", model, *gpu, "--json").json
    signed = sigstore(artifact["sha256"])
    (mxr.home / "ci.json").write_text(json.dumps(signed))
    assert mxr("statement", "import", artifact["id"], "ci.json").out.strip() == "https://slsa.dev/provenance/v1"
    assert "(imported, sigstore)" in mxr("show", artifact["id"], "--statement").out
    mxr("statement", "export", artifact["id"], "--kind", "sigstore", "-o", "again.json")
    assert json.loads((mxr.home / "again.json").read_text()) == signed
    bad = (("", 2), ("[]", 65), ("{}", 2), (json.dumps(sigstore("0" * 64)), 6), ("x" * (5 << 20), 65))
    for text, code in bad:
        (mxr.home / "bad.json").write_text(text)
        mxr("statement", "import", artifact["id"], "bad.json", expect=code)
    mxr("export", artifact["id"], "-o", "bundle.tar")

    other = own_registry()
    far = host("far", other.url)
    far("import", mxr.home / "bundle.tar", "--into", "registry")
    far("import", mxr.home / "bundle.tar", "--into", "registry")
    items = far.get(f"/v1/statements/{artifact['id']}")["items"]
    assert [(each["kind"], each["imported"]) for each in items] == [
        ("urn:mxr:accepted:v1", False),
        ("https://slsa.dev/provenance/v1", True),
        ("urn:mxr:accepted:v1", True),
    ]
    assert items[2]["envelope"]["signatures"][0]["keyid"] == fingerprint and items[1]["bundle"] == signed
    own = key(other, "ls")["keys"][0]["id"]
    assert far("statement", "export", artifact["id"], "--json").json["key"] == own != fingerprint
    strict = host("strict", other.url)
    strict("trust", "add", "--fingerprint", own)
    strict("fetch", model, *gpu)
    sql(other, "DELETE FROM statements WHERE NOT imported")
    fresh = host("fresh", other.url)
    fresh("trust", "add", "--fingerprint", own)
    assert fresh("fetch", model, *gpu, "--json", expect=6).error["code"] == "unknown_key"
    assert far("statement", "export", artifact["id"], "--json", expect=6).error["code"] == "unsigned"
    assert key(other, "resign") == {"signed": 1}, "what others signed does not count"
    fresh("fetch", model, *gpu)


def test_bad_fingerprints_and_files(fleet: tuple[Registry, Host, str], host: Hosts, model: Path, gpu: Any) -> None:
    registry, _, fingerprint = fleet
    mxr = host("strict", registry.url)
    for bad in ("", "0" * 64, fingerprint[:-1], fingerprint[:12]):
        assert mxr("trust", "add", "--fingerprint", bad, "--json", expect=6).error["code"] == "unknown_key"
    assert "--fingerprint" in mxr("trust", "add", expect=2).err
    assert mxr("trust", "ls").out == ""
    mxr("trust", "add", "--fingerprint", fingerprint)
    file = next(mxr.home.rglob("trust.json"))
    assert file.stat().st_mode & 0o777 == 0o600
    good = file.read_text()
    for text in ("", "{", "[]", good.replace("origin", "origins"), good.replace("active", "alive")):
        file.write_text(text)
        mxr("fetch", model, *gpu, expect=2)
    file.write_text(good)
    file.chmod(0o666)
    assert "Only this user and root may write it" in mxr("fetch", model, *gpu, expect=2).err
    file.chmod(0o600)
    mxr("fetch", model, *gpu)
    mxr("trust", "add", "--fingerprint", fingerprint, "--origin", "built")
    refused = mxr("fetch", model, *gpu, "--json", expect=6).error
    assert refused["code"] == "other_record" and "built" in refused["detail"]
    mxr("trust", "rm", registry.url)
    mxr("fetch", model, *gpu)
    mxr("trust", "rm", registry.url, expect=3)


def test_the_recall_list_is_signed_and_only_grows(
    fleet: tuple[Registry, Host, str],
    host: Hosts,
    model: Path,
    convnet: Path,
    programs: Any,
    gpu: tuple[str, ...],
    tmp_path: Path,
) -> None:
    registry, mxr, fingerprint = fleet
    strict, older = host("strict", registry.url), tmp_path / "older.db"
    strict("fetch", model, *gpu)
    strict("trust", "add", "--fingerprint", fingerprint)
    mxr("push", programs.ref, "--model", convnet, "--for", "python", "--precision", "fp16")
    asked = (convnet, "--kind", "ref", "--migraphx", "2.16", "--for", "python", "--batch", "4", "--precision", "fp16")
    with closing(sqlite3.connect(registry.data / "registry.db")) as now, closing(sqlite3.connect(older)) as then:
        now.backup(then)
    identity = mxr("fetch", model, *gpu, "--json").json["id"]
    mxr("quarantine", identity, "--reason", "wrong")
    strict("fetch", *asked)
    assert strict("fetch", model, *gpu, "--offline", "--json", expect=6).error["code"] == "recalled"
    # An older database is restored, and the store is lost: the recall is forgotten, but not by the host.
    registry.stop()
    shutil.rmtree(registry.data / "store" / "notes")
    for path in registry.data.glob("registry.db*"):
        path.unlink()
    (registry.data / "registry.db").write_bytes(older.read_bytes())
    registry.restart()
    refused = strict("fetch", *asked, "--refresh", "--json", expect=6).error
    assert refused["code"] == "untrusted" and "older than the one that this host has seen" in refused["detail"]
    assert strict("fetch", model, *gpu, "--offline", "--json", expect=6).error["code"] == "recalled"
    # The operator says it again, and all is well.
    mxr("quarantine", identity, "--reason", "wrong")
    strict("fetch", *asked, "--refresh")
    # A registry that lost its key cannot show a newer list.
    (registry.data / "signing.key").unlink()
    mxr("unyank", identity)
    assert strict("fetch", *asked, "--refresh", "--json", expect=6).error["code"] == "unsigned"


def test_a_revoked_key_is_heard_of_and_signing_again_mends_it(
    fleet: tuple[Registry, Host, str], host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    registry, _, fingerprint = fleet
    strict = host("strict", registry.url)
    strict("trust", "add", "--fingerprint", fingerprint)
    strict("fetch", model, *gpu)
    late = host("late", registry.url)
    late("trust", "add", "--fingerprint", fingerprint)
    made = key(registry, "rotate")["id"]
    strict("fetch", model, *gpu, "--refresh")
    key(registry, "revoke", fingerprint)
    refused = strict("fetch", model, *gpu, "--refresh", "--json", expect=6).error
    assert refused["code"] == "revoked_key", refused
    # Who did not hear of the new key while the old one counted is told its fingerprint: anybody may have endorsed it.
    assert late("fetch", model, *gpu, "--json", expect=6).error["code"] == "unknown_key"
    (row,) = strict("trust", "ls", "--json").json["registries"]
    assert row["keys"] == {fingerprint: "revoked", made: "active"}
    assert strict("fetch", model, *gpu, "--offline", "--json", expect=6).error["code"] == "revoked_key"
    assert key(registry, "resign") == {"signed": 1}
    strict("fetch", model, *gpu, "--refresh")
    strict("fetch", model, *gpu, "--offline")


def test_a_list_whose_time_is_over_is_refused(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr, strict = host("publisher", registry.url), host("strict", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("quarantine", "ab" * 32, "--reason", "x")
    strict("trust", "add", "--fingerprint", key(registry, "ls")["keys"][0]["id"])
    strict("fetch", model, *gpu)
    for path in strict.cache.rglob("recalls/own.json"):
        row = json.loads(path.read_text())
        assert row["expires_at"] > 0
        path.write_text(json.dumps(row | {"expires_at": 1e9}))
    refused = strict("fetch", model, *gpu, "--offline", "--json", expect=6).error
    assert refused["code"] == "untrusted" and "too old to be relied on" in refused["detail"]
    strict("fetch", model, *gpu, "--refresh")
    strict("fetch", model, *gpu, "--offline")


def test_the_page_leads_from_nothing_through_a_rotation_and_a_compromise(
    fleet: tuple[Registry, Host, str], host: Hosts, model: Path, gpu: tuple[str, ...]
) -> None:
    """Each command of the page, in its order and as written."""
    registry, mxr, _ = fleet
    strict = host("strict", registry.url)
    program = mxr("fetch", model, *gpu, "--json").json
    identity = program["id"]
    (mxr.home / "ci.sigstore.json").write_text(json.dumps(sigstore(program["sha256"])))
    put = {"ID": identity, "https://registry.example.com": registry.url}
    environ = mxr.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environ |= {name: value for name, value in registry.environ.items() if name.startswith("MXR_SIGNING")}
    environ["MXR_SERVE_DATA"] = str(registry.data)

    def fetched() -> bool:
        return bool(strict("fetch", model, *gpu, "--refresh", "--json").json["id"] == identity)

    sections = re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE)
    ran = []
    for section in sections:
        title = section.partition("\n")[0]
        for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL):
            keys = key(registry, "ls")["keys"]
            now = next(each["id"] for each in keys if (each["role"], each["state"]) == ("registry", "active"))
            put |= {"OLD": now, "FINGERPRINT": now}
            text = block
            for name, value in put.items():
                text = re.sub(rf"\b{re.escape(name)}\b", value, text)
            where = strict if "mxr trust" in block else mxr
            done = run(["sh", "-ec", text], env=environ | homes(where), cwd=where.home)
            assert done.returncode == 0, (title, text, done)
            ran.append(title)
        if title.startswith(("Require", "Rotate", "When somebody")):
            assert fetched(), title
    assert len(ran) >= 7 and len(set(ran)) >= 6, ran
    states = {each["state"] for each in key(registry, "ls")["keys"]}
    assert states == {"active", "retired", "revoked"}


def homes(host: Host) -> dict[str, str]:
    """Where a host keeps its files."""
    return {name: value for name, value in host.environ.items() if name.startswith(("HOME", "XDG_", "MXR_CACHE"))}
