"""Rows for the benches: the registry's own services write some, and the database multiplies these.

No bench writes a row of its own, so a new column needs no change here. Multiplied rows differ from the written one in
the columns that a bench names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from mxr.artifact import matching
from mxr.artifact.attributes import Attributes, Request
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.model_files import ModelFiles
from mxr.protocol.artifacts import Publish, RegisterModel
from mxr.trust.keys import SigningKey
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import blobs, models, publication
from mxr_registry.artifacts.amendment import CheckedPublication, PublicationSource
from mxr_registry.database.claim import id_of
from mxr_registry.database.session import Database
from mxr_registry.signer import Signer
from mxr_registry.storage.local import LocalStore
from mxr_registry.storage.store import Store

NAMESPACE = "default"
CALLER = Caller("bench", NAMESPACE, frozenset({"ask"}), token="")
CONTENT = b"a program" * 100
"""The bytes of every artifact and every model: no bench here reads them."""


def upload_content(db: Database, folder: Path) -> tuple[Store, File]:
    """Upload `CONTENT` to a store in the folder. Returns the store and a file with these bytes."""
    store, name = LocalStore(folder / "store"), sha256(CONTENT).hexdigest()
    store.adopt(id_of(db))
    upload = store.begin(name, len(CONTENT))
    upload.write(CONTENT)
    upload.commit()
    blobs.record_upload(db, store, NAMESPACE, CALLER.principal, name, len(CONTENT), "0" * 32)
    return store, File("model.mxr", len(CONTENT), name, (Blob(name, len(CONTENT)),))


def register_model(db: Database, file: File) -> str:
    """Register a model with the bytes of `CONTENT`. Returns its identity."""
    manifest = Manifest((File("model.onnx", file.size, file.sha256, file.blobs),))
    identity = ModelFiles.of(manifest, "model.onnx").model
    with db.writing() as session:
        models.save(
            session, NAMESPACE, CALLER.principal, RegisterModel("model.onnx", "model.onnx", manifest, model=identity)
        )
    return identity


def publish(session: Connection, requests: Iterable[Request], attributes: Attributes, file: File) -> None:
    """Publish an artifact for the key of each request, as if a worker had built it."""
    source = PublicationSource(matching.BUILT, "bench", worker="bench")
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as folder:
        key = Path(folder, "signing.key")
        SigningKey.create(key)
        session.execution_options(mxr_signer=Signer(key))
        for request in requests:
            digest, wanted = request.key.digest, Publish(request.key, Manifest((file,)), attributes)
            checked = CheckedPublication(wanted, source, digest, artifact_id(digest, (file,)), {}, {})
            publication.write_artifact(session, NAMESPACE, checked)


def number_as_hex(db: Database, expression: str, digits: int) -> str:
    """The SQL of a number as hex digits."""
    if db.embedded:
        return f"printf('%0{digits}x', {expression})"
    return f"lpad(to_hex({expression}), {digits}, '0')"


@contextmanager
def templates(session: Connection, *tables: Any) -> Iterator[None]:
    """Set the rows of these tables aside, as what `multiply` multiplies. A table comes after those it refers to."""
    for table in tables:
        session.execute(
            text(f"CREATE TEMP TABLE template_{table.__tablename__} AS SELECT * FROM {table.__tablename__}")
        )
    for table in reversed(tables):
        session.execute(text(f"DELETE FROM {table.__tablename__}"))
    yield
    for table in tables:
        session.execute(text(f"DROP TABLE template_{table.__tablename__}"))


def multiply(session: Connection, table: Any, copies: int, **changed: str) -> None:
    """Insert each row of a template `copies` times. `changed`: SQL of columns, over the columns of the row and `n`.

    `n` counts from 0 to `copies - 1` for each row.
    """
    columns = [column.name for column in table.__table__.columns]
    values = ", ".join(changed.get(name, name) for name in columns)
    numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {copies - 1})"
    session.execute(
        text(
            f"INSERT INTO {table.__tablename__} ({', '.join(columns)}) {numbers} "
            f"SELECT {values} FROM template_{table.__tablename__} CROSS JOIN numbers"
        )
    )
