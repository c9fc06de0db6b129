"""The step that gives artifacts the name of their model: what a publisher called it, else the registered one."""

from __future__ import annotations

from migrations.steps import go_to
from sqlalchemy import text

from mxr.util.codec import canonical
from mxr_registry.database import schema
from mxr_registry.database.session import Database

COLUMNS = (
    "namespace, id, digest, model, kind, migraphx, precision, sha256, size, key_json, qualities_json, "
    "provenance_json, sources_json, origin, names_json, published_at, promoted, manifest_json, claim_json"
)


def test_artifacts_get_the_name_of_their_model(db: Database) -> None:
    go_to(db, "0010")
    claim = canonical({"name": "claimed \u00fc.onnx", "inputs": []})
    rows = {
        "claimed": ("known", "pushed", claim),
        "registered": ("known", "pushed", None),
        "built": ("known", "built", claim),
        "unknown": ("other", "pushed", None),
    }
    with db.writing() as session:
        session.execute(
            text(
                "INSERT INTO models (namespace, model, name, inputs_json, complete, created_at) "
                "VALUES ('default', 'known', 'm.onnx', '[]', false, 1.0), ('x', 'other', 'x.onnx', '[]', false, 1.0)"
            )
        )
        for id, (model, origin, said) in rows.items():
            session.execute(
                text(
                    f"INSERT INTO artifacts ({COLUMNS}) VALUES ('default', :i, 'd', :m, 'gpu', '2.15', 'fp32', 's', 9, "
                    "'{}', '{}', '{}', '{}', :o, '[]', 1.0, 0, '{}', :c)"
                ),
                {"i": id, "m": model, "o": origin, "c": said},
            )
    schema.upgrade(db)
    with db.reading() as session:
        found = dict(session.execute(text("SELECT id, model_name FROM artifacts")).all())
    assert found == {"claimed": "claimed \u00fc.onnx", "registered": "m.onnx", "built": "m.onnx", "unknown": None}
