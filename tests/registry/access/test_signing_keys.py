"""The keys of a registry: what each publication is signed with, and what a rotation and a compromise leave."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import Parts, RegistryUnderTest, Start

from mxr.artifact.records import Artifact
from mxr.errors import MxrError, UntrustedError
from mxr.protocol.statements import RegistryKeys
from mxr.trust import endorsement
from mxr.trust.envelope import Envelope
from mxr.trust.keys import PublicKey, SigningKey
from mxr.trust.statement import ACCEPTED, PAYLOAD_TYPE, Accepted
from mxr.util import codec

EXPLICIT = {"sramecc": "+", "xnack": "-"}


@pytest.fixture
def registry(start: Start) -> RegistryUnderTest:
    """A registry of its own, on the embedded database."""
    return start()


def key_file(registry: RegistryUnderTest) -> Path:
    """The file of its private key: in the data directory of the embedded database, else where it is told."""
    return Path(registry.environ.get("MXR_SIGNING_KEY_FILE") or registry.data / "signing.key")


def key(registry: RegistryUnderTest, *words: str, expect: int = 0) -> Any:
    """The document of `mxr-registry key`, run beside the registry."""
    command = ["mxr-registry", "key", *words, "--data", str(registry.data), "--json"]
    done = run_program(command, env=registry.environ)
    assert done.returncode == expect, done
    return json.loads(done.stdout)


def public_keys(registry: RegistryUnderTest) -> dict[str, PublicKey]:
    """The keys that count, by id."""
    found = codec.decode(RegistryKeys, registry.ok("GET", "/v1/keys"))
    assert found.registry == registry.request("GET", "/readyz").headers["MXR-Registry"]
    return {each.id: PublicKey(each.public_key) for each in found.items if each.state != "revoked"}


def statements(registry: RegistryUnderTest, id: str) -> list[Envelope]:
    """What was signed of an artifact, the latest first."""
    items = registry.ok("GET", f"/v1/statements/{id}")["items"]
    assert {each["kind"] for each in items} <= {ACCEPTED}
    return [codec.decode(Envelope, each["envelope"]) for each in items]


def publish(registry: RegistryUnderTest, parts: Parts, number: int = 0) -> Any:
    """A published program."""
    key = parts.gpu_key() | {"env": {"MIGRAPHX_MLIR_TUNE_LIMIT": str(number + 1)}}
    status, said = registry.publish(parts.gfx908, key, attributes=EXPLICIT)
    assert status == 201, said
    return said


def test_a_publication_is_signed_with_what_it_says(registry: RegistryUnderTest, parts: Parts) -> None:
    said = publish(registry, parts)
    (envelope,) = statements(registry, said["id"])
    document, signers = envelope.verify(PAYLOAD_TYPE, public_keys(registry))
    (listed,) = key(registry, "ls")["keys"]
    assert signers == {listed["id"]} and listed["state"] == "active" and listed["endorsement"] is None
    artifact = codec.decode(Artifact, said)
    Accepted.read(document).refuse_other(artifact)
    predicate = document["predicate"]
    for name in ("key", "attributes", "origin", "model", "created_by", "job", "worker", "digest", "sources"):
        assert predicate[name] == said[name], name
    assert document["subject"] == [{"name": "model.mxr", "digest": {"sha256": said["sha256"]}}]
    assert key_file(registry).stat().st_mode & 0o777 == 0o600


def test_a_built_one_names_worker_and_log(registry: RegistryUnderTest, parts: Parts) -> None:
    from hashlib import sha256

    from registry.registry_client import REF, ref_key

    worker, model = registry.register_worker("one"), registry.register_model()
    job = registry.submit(ref_key(model))
    lease = registry.claim(worker)
    registry.heartbeat(lease, log="compiling\n")
    done = {"lease": lease["secret"], "artifact": registry.publication(lease, data=REF), "log": "compiled\n"}
    registry.ok("POST", f"/v1/jobs/{lease['job']}/finish", done)
    id = registry.job(job["id"])["artifact"]
    document, _ = statements(registry, id)[0].verify(PAYLOAD_TYPE, public_keys(registry))
    said = document["predicate"]
    assert (said["origin"], said["model"], said["worker"], said["job"]) == ("built", "verified", "one", job["id"])
    text = registry.request("GET", f"/v1/jobs/{job['id']}/log").data
    assert said["log"] == sha256(text).hexdigest()


def test_changed_facts_add_a_statement_and_change_none(registry: RegistryUnderTest, parts: Parts) -> None:
    said = publish(registry, parts)
    before = statements(registry, said["id"])
    more = {"attributes": EXPLICIT | {"num_cu": 104}, "intent": {"amend": True}}
    status, changed = registry.publish(parts.gfx908, said["key"], **more)
    assert status == 200
    after = statements(registry, said["id"])
    assert after[1:] == before and len(after) == 2
    latest, earlier = (Accepted.read(each.verify(PAYLOAD_TYPE, public_keys(registry))[0]) for each in after)
    latest.refuse_other(codec.decode(Artifact, changed))
    with pytest.raises(UntrustedError):
        earlier.refuse_other(codec.decode(Artifact, changed))


def test_a_statement_is_of_one_artifact_only(registry: RegistryUnderTest, parts: Parts) -> None:
    first, second = publish(registry, parts), publish(registry, parts, 1)
    document, _ = statements(registry, first["id"])[0].verify(PAYLOAD_TYPE, public_keys(registry))
    with pytest.raises(UntrustedError):
        Accepted.read(document).refuse_other(codec.decode(Artifact, second))
    for change in (
        {"predicateType": "urn:mxr:accepted:v2"},
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"subject": []},
        {"subject": [*document["subject"], *document["subject"]]},
        {"subject": [{"name": "model.mxr"}]},
        {"predicate": {}},
        {"predicate": 7},
    ):
        with pytest.raises(MxrError):
            Accepted.read(document | change).refuse_other(codec.decode(Artifact, first))
    # A program more or less than the record names.
    with pytest.raises(UntrustedError):
        more = [*document["subject"], {"name": "other.mxr", "digest": {"sha256": "0" * 64}}]
        Accepted.read(document | {"subject": more}).refuse_other(codec.decode(Artifact, first))


def test_a_rotation_endorses_the_new_key_and_what_was_signed_stays(registry: RegistryUnderTest, parts: Parts) -> None:
    first = publish(registry, parts)
    (old,) = public_keys(registry).values()
    made = key(registry, "rotate")
    second = publish(registry, parts, 1)
    assert {each["id"]: each["state"] for each in key(registry, "ls")["keys"]} == {
        old.id: "retired",
        made["id"]: "active",
    }
    identity = registry.ok("GET", "/v1/keys")["registry"]
    said = codec.decode(Envelope, made["endorsement"])
    endorsement.check(said, PublicKey(made["public_key"]), identity, {old.id: old}, "registry")
    for artifact, signer in ((first, old.id), (second, made["id"])):
        assert statements(registry, artifact["id"])[0].verify(PAYLOAD_TYPE, public_keys(registry))[1] == {signer}
    assert key(registry, "retire", made["id"], expect=6)["error"]["code"] == "conflict", "it is the only one"
    assert not list(key_file(registry).parent.glob("*.new"))


def test_rotations_at_once_leave_one_key_that_signs(registry: RegistryUnderTest, parts: Parts) -> None:
    """Of one key file, and of the files of two registries on one database."""
    publish(registry, parts)
    second = key_file(registry).with_name("second.key")
    key(registry, "create", "--out", str(second))
    own, other = registry.environ, registry.environ | {"MXR_SIGNING_KEY_FILE": str(second)}
    command = ["mxr-registry", "key", "rotate", "--data", str(registry.data), "--json"]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda environ: run_program(command, env=environ), (own, other, own, other)))
    assert {each.returncode for each in done} <= {0, 7, 75} and 0 in {each.returncode for each in done}, done
    states = {each["id"]: each for each in key(registry, "ls")["keys"]}
    for file in (key_file(registry), second):
        assert states[SigningKey.load(file).public.id]["state"] == "active"
    assert sum(each["state"] == "active" for each in states.values()) == 2
    assert sum(each["endorsement"] is None for each in states.values()) == 1, "the first one only"
    publish(registry, parts, 1)


def test_a_compromise_is_revoked_and_signed_again(registry: RegistryUnderTest, parts: Parts) -> None:
    said = [publish(registry, parts, number) for number in range(3)]
    (stolen,) = public_keys(registry)
    key(registry, "rotate")
    later = publish(registry, parts, 3)
    assert key(registry, "revoke", stolen[:12])["state"] == "revoked"
    with pytest.raises(UntrustedError):
        statements(registry, said[0]["id"])[0].verify(PAYLOAD_TYPE, public_keys(registry))
    assert key(registry, "resign") == {"signed": 3}
    assert key(registry, "resign") == {"signed": 0}
    for each in (*said, later):
        statements(registry, each["id"])[0].verify(PAYLOAD_TYPE, public_keys(registry))
    assert len(statements(registry, later["id"])) == 1
    assert key(registry, "retire", stolen, expect=6)["error"]["code"] == "conflict"


def test_without_its_key_a_registry_serves_and_accepts_nothing(registry: RegistryUnderTest, parts: Parts) -> None:
    said = publish(registry, parts)
    file = key_file(registry)
    kept = file.read_bytes()
    for spoil in (file.unlink, lambda: file.write_bytes(b"x"), lambda: file.write_bytes(kept[:40])):
        file.write_bytes(kept)
        spoil()
        status, refused = registry.publish(parts.gfx908, parts.gpu_key(), attributes=EXPLICIT)
        assert (status, refused["code"]) == (503, "temporary") and "signing key" in refused["detail"]
        assert kept.decode()[30:70] not in json.dumps(refused)
        assert registry.get(f"/v1/artifacts/{said['id']}/files/model.mxr").status == 200
    # A start makes no other key in its place: hosts that trust the first one would not know it.
    file.unlink()
    registry.restart()
    assert not file.exists() and len(public_keys(registry)) == 1
    assert "accepts no publication" in registry.log.read_text()
    made = key(registry, "create")
    assert made["endorsement"] is None
    publish(registry, parts, 1)
    # The old key is back, and known.
    file.unlink()
    file.write_bytes(kept)
    publish(registry, parts, 2)


def test_a_key_that_was_never_made_known_signs_nothing(
    registry: RegistryUnderTest, parts: Parts, tmp_path: Path
) -> None:
    from mxr.trust.keys import SigningKey

    file = key_file(registry)
    file.unlink()
    SigningKey.create(file)
    status, refused = registry.publish(parts.gfx908, parts.gpu_key(), attributes=EXPLICIT)
    assert status == 503 and "was never made known" in refused["detail"]
    made = key(registry, "create", "--out", str(tmp_path / "next.key"), expect=75)
    assert "never made known" in made["error"]["detail"] and not (tmp_path / "next.key").exists()


def test_a_key_that_was_revoked_first_is_replaced_without_its_word(registry: RegistryUnderTest, parts: Parts) -> None:
    """At three in the morning somebody revokes before they rotate."""
    said = publish(registry, parts)
    (stolen,) = public_keys(registry)
    key(registry, "revoke", stolen)
    status, refused = registry.publish(parts.gfx908, parts.gpu_key(), attributes=EXPLICIT)
    assert status == 503 and "is revoked" in refused["detail"]
    made = key(registry, "rotate")
    assert made["endorsement"] is None and made["state"] == "active"
    assert {each["id"]: each["state"] for each in key(registry, "ls")["keys"]} == {
        stolen: "revoked",
        made["id"]: "active",
    }
    assert key(registry, "resign") == {"signed": 1}
    assert statements(registry, said["id"])[0].verify(PAYLOAD_TYPE, public_keys(registry))[1] == {made["id"]}
