"""The step to key version 2: complete models and their artifacts get new keys from their manifests, others go."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from identities import PIECE, model_of
from migrations.steps import go_to
from sqlalchemy import text

from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest, artifact_id
from mxr.errors import NotFoundError
from mxr.util.codec import canonical
from mxr_registry.artifacts import catalog
from mxr_registry.database import schema
from mxr_registry.database.session import Database

ONNX, WEIGHTS, PROGRAM = b"an ONNX file", b"weights", b"a program"
KEPT, CLAIMED, COARSE = ("xxh3:" + digit * 32 for digit in "abc")


def file(name: str, data: bytes, *sizes: int) -> dict[str, Any]:
    blobs = [{"sha256": sha256(b"%d" % size).hexdigest(), "size": size} for size in sizes]
    blobs = blobs or [{"sha256": sha256(data).hexdigest(), "size": len(data)}]
    return {"name": name, "size": sum(sizes) or len(data), "sha256": sha256(data).hexdigest(), "blobs": blobs}


def manifest(*files: dict[str, Any]) -> str:
    return canonical({"v": 1, "files": sorted(files, key=lambda each: each["name"])})


def old_key(model: str, form: str) -> str:
    found = Key("sha256:" + "0" * 64, "gpu", "2.15", (("x", (1, 3)),), arch="gfx90a", rocm="7.2", form=form).to_json()
    del found["options"]
    return canonical(found | {"v": 1, "model": model})


def fill(db: Database) -> dict[str, str]:
    """A complete model, one that was only declared, one in other pieces; artifacts of each; the old ids."""
    models = {
        KEPT: (True, "model.onnx", manifest(file("model.onnx", ONNX), file("w.data", WEIGHTS))),
        CLAIMED: (False, None, None),
        COARSE: (True, "m.onnx", manifest(file("m.onnx", b"", PIECE + 1, 5))),
    }
    ids = {}
    with db.writing() as session:
        row = "namespace, model, sha256, name, inputs_json, complete, onnx, manifest_json, created_at"
        for model, (complete, onnx, files) in models.items():
            given = {"m": model, "s": "0" * 64, "c": complete, "o": onnx, "f": files}
            session.execute(
                text(f"INSERT INTO models ({row}) VALUES ('default', :m, :s, 'm', '[]', :c, :o, :f, 1.0)"), given
            )
        row = (
            "namespace, id, digest, model, kind, migraphx, precision, sha256, size, key_json, qualities_json, "
            "provenance_json, sources_json, origin, job, names_json, published_at, promoted, manifest_json"
        )
        values = (
            "'default', :i, :d, :m, 'gpu', '2.15', 'fp32', :s, 9, :k, '{}', '{}', :u, 'built', 'j', '[]', 1.0, 0, :f"
        )
        whole, parts = manifest(file("model.mxr", PROGRAM)), manifest(file("a", PROGRAM), file("b", WEIGHTS))
        for name, model, form, files in (
            ("kept", KEPT, "whole", whole),
            ("recording", KEPT, "ort:B:1.27.1:all:0f1e2d3c4b5a", parts),
            ("claimed", CLAIMED, "whole", whole),
            ("coarse", COARSE, "whole", whole),
        ):
            digest = sha256(old_key(model, form).encode()).hexdigest()
            found = Manifest.from_json(json.loads(files))
            ids[name] = artifact_id(digest, found.files)
            given = {"i": ids[name], "d": digest, "m": model, "s": found.sha256, "k": old_key(model, form), "f": files}
            given["u"] = canonical({"tuning": "worker", "arch": "reader"})
            session.execute(text(f"INSERT INTO artifacts ({row}) VALUES ({values})"), given)
        session.execute(text("INSERT INTO locks (namespace, name, created_at, updated_at) VALUES ('default','l',1,1)"))
        session.execute(text("INSERT INTO lock_artifacts SELECT 1, seq FROM artifacts"))
        session.execute(
            text("INSERT INTO misses VALUES ('default', 'r', 'd', :j, '[]', 1, 1.0, 1.0)"),
            {"j": canonical({"key": json.loads(old_key(KEPT, "whole"))})},
        )
    return ids


def test_models_and_artifacts_get_new_keys(db: Database) -> None:
    go_to(db, "0009")
    old = fill(db)
    schema.upgrade(db)
    identity = model_of(ONNX, {"w.data": WEIGHTS})
    with db.reading() as session:
        assert session.execute(text("SELECT model FROM models")).scalars().all() == [identity]
        rows = session.execute(text("SELECT * FROM artifacts ORDER BY seq")).all()
        assert len(rows) == 2 == session.execute(text("SELECT count(*) FROM lock_artifacts")).scalar_one()
        assert session.execute(text("SELECT count(*) FROM misses")).scalar_one() == 0
        for row in rows:
            key = Key.from_json(json.loads(row.key_json))
            assert (row.model, row.digest, row.key_json) == (key.model, key.digest, key.canonical)
            assert key.model == identity
            assert (row.origin, row.job) == ("pushed", None), "another model with its XXH3 hash may have been compiled"
            assert json.loads(row.sources_json) == {"tuning": "publisher", "arch": "reader"}
            assert row.id == artifact_id(key.digest, Manifest.from_json(json.loads(row.manifest_json)).files)
        assert Key.from_json(json.loads(rows[1].key_json)).form.startswith("ort:")
        # Old ids say what became of them.
        for name, at in (("kept", 0), ("recording", 1)):
            with pytest.raises(NotFoundError, match=rows[at].id) as found:
                catalog.find(session, "default", old[name][:12])
            assert "mxr lock" in found.value.hint
        for name in ("claimed", "coarse"):
            with pytest.raises(NotFoundError, match="could not get a key of version 2") as found:
                catalog.find(session, "default", old[name])
            assert "mxr push" in found.value.hint
        with pytest.raises(NotFoundError, match="There is no artifact"):
            catalog.find(session, "default", "f" * 64)
