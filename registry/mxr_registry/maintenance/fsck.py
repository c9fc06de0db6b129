"""Has every row its bytes, and every byte its row? Looks at everything, and says what it finds line by line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, exists, func, select, text

from mxr.artifact.manifest import Manifest, artifact_id
from mxr.errors import MxrError, NoSuchBlob
from mxr.util.codec import canonical
from mxr.util.hashing import sha256_chunks
from mxr_registry.artifacts.blobs import turn_of
from mxr_registry.database import schema
from mxr_registry.database.session import Database, Row, Session, take_turns
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactRow, BlobRow, ModelBlobRow, ModelRow
from mxr_registry.storage.store import Store, StoredItem

DAMAGE = ("database", "row", "missing", "size", "bytes")
"""Kinds of findings that something is lost or wrong; the others are leftovers that do no harm."""

BY_PAGES = {"yield_per": 500}
"""Has a server hand out the rows by and by: manifests of a million artifacts do not fit into memory."""


@dataclass(frozen=True, slots=True)
class FsckFinding:
    """One thing that is not as it should be, and what was done about it."""

    kind: str
    name: str
    words: str
    repaired: bool = False

    @property
    def damage(self) -> bool:
        """Whether something is lost or wrong."""
        return self.kind in DAMAGE

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}: {self.words}{' (repaired)' if self.repaired else ''}"


@dataclass(slots=True)
class FsckReport:
    """What was looked at, and what was found."""

    findings: list[FsckFinding] = field(default_factory=list)
    artifacts: int = 0
    models: int = 0
    blobs: int = 0
    stored: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is lost or wrong. Damaged bytes stay damage after they were set aside: they are gone."""
        return not any(each.damage for each in self.findings)

    def to_json(self) -> dict[str, Any]:
        """`{"ok","artifacts","models","blobs","stored","findings":[{"kind","name","words","repaired","damage"}]}`."""
        rows = [asdict(each) | {"damage": each.damage} for each in self.findings]
        counts = {name: getattr(self, name) for name in ("artifacts", "models", "blobs", "stored")}
        return {"ok": self.ok, **counts, "findings": rows}


@dataclass(frozen=True, slots=True)
class Fsck:
    """One inspection. `say` hears of each finding at once. `grace`: seconds for which leftovers are left alone.

    `repair` removes old leftovers, and rows of blobs without bytes that nothing needs; it sets damaged bytes aside.
    """

    db: Database
    store: Store
    grace: float
    say: Callable[[FsckFinding], None]
    repair: bool = False
    quick: bool = False
    report: FsckReport = field(default_factory=FsckReport)

    def run(self) -> FsckReport:
        """Look at the database, the rows, and the store."""
        with self.db.reading() as session:
            for kind, name, words in _database(session):
                self._found(kind, name, words)
            for kind, name, words in self._manifests(session):
                self._found(kind, name, words)
            rows = session.execute(select(BlobRow.sha256, BlobRow.size).distinct()).all()
        self.report.blobs = len(rows)
        for row in rows:
            self._blob(row.sha256, row.size)
        for kept in list(self.store.walk()):
            self._stored(kept)
        return self.report

    def _found(self, kind: str, name: str, words: str, repaired: bool = False) -> None:
        finding = FsckFinding(kind, name, words, repaired)
        self.report.findings.append(finding)
        self.say(finding)

    def _manifests(self, session: Session) -> Iterator[tuple[str, str, str]]:
        artifact, blob = ArtifactRow, ArtifactBlobRow
        asked = select(artifact.seq, artifact.id, artifact.digest, artifact.key_json, artifact.manifest_json)
        for row in session.execute(asked, execution_options=BY_PAGES):
            self.report.artifacts += 1
            bound = set(session.execute(select(blob.sha256).where(blob.artifact == row.seq)).scalars())
            for words in _wrong(row.manifest_json, bound, row):
                yield "row", f"artifact {row.id}", words
        models = select(ModelRow.seq, ModelRow.model, ModelRow.manifest_json)
        for seq, model, manifest_json in session.execute(models, execution_options=BY_PAGES):
            self.report.models += 1
            bound = set(session.execute(select(ModelBlobRow.sha256).where(ModelBlobRow.model == seq)).scalars())
            for words in _wrong(manifest_json, bound) if manifest_json else ():
                yield "row", f"model {model}", words

    def _blob(self, name: str, size: int) -> None:
        stored = self.store.stat(name)
        if stored is None:
            with self.db.reading() as session:
                users = _users(session, name)
            if users:
                self._found("missing", f"blob {name}", f"no bytes in the store; needed by {users}")
            else:
                self._found("unused", f"blob {name}", "a row without bytes, needed by nothing", self._forget(name))
        elif stored != size or not (self.quick or self._right(name)):
            with self.db.reading() as session:
                users = _users(session, name) or "nothing"
            kind, words = ("bytes", "its bytes no longer give its sha256")
            if stored != size:
                kind, words = ("size", f"{stored} bytes in the store, {size} in its row")
            self._found(kind, f"blob {name}", f"{words}; needed by {users}", self._aside(name))

    def _forget(self, name: str) -> bool:
        if self.repair:
            with self.db.writing() as session:
                take_turns(session, turn_of(name))
                if self.store.stat(name) is not None or _users(session, name):
                    return False
                session.execute(delete(BlobRow).where(BlobRow.sha256 == name))
        return self.repair

    def _right(self, name: str) -> bool:
        try:
            return sha256_chunks(self.store.read(name)) == name
        except (NoSuchBlob, OSError):
            return False

    def _aside(self, name: str) -> bool:
        if self.repair:
            self.store.set_aside(name)
        return self.repair

    def _stored(self, kept: StoredItem) -> None:
        self.report.stored += 1
        old = kept.modified < time.time() - self.grace
        if kept.sha256 is None:
            if self.repair and old:
                self.store.drop(kept)
            self._found("temporary", kept.name, "an upload that was not finished", self.repair and old)
        elif not self._has_row(kept.sha256):
            dropped = self.repair and old and self._drop_orphan(kept.sha256)
            self._found("orphan", f"blob {kept.sha256}", f"{kept.size} bytes without a row", dropped)

    def _has_row(self, name: str) -> bool:
        with self.db.reading() as session:
            return session.execute(select(BlobRow.sha256).where(BlobRow.sha256 == name).limit(1)).first() is not None

    def _drop_orphan(self, name: str) -> bool:
        """Within a turn of this blob, so that no upload of the same bytes gets its row between look and deed."""
        with self.db.writing() as session:
            take_turns(session, turn_of(name))
            row = session.execute(select(BlobRow.sha256).where(BlobRow.sha256 == name).limit(1)).first()
            # What needs it though its row is lost is damage, found elsewhere, and its bytes are all that is left.
            if row is not None or _users(session, name):
                return False
            self.store.delete(name)
        return True


def _users(session: Session, name: str) -> str:
    """The first few artifacts and models that are made of a blob, in words; nothing for none."""
    artifact, model = ArtifactRow, ModelRow
    artifacts = select(artifact.id).join(ArtifactBlobRow, ArtifactBlobRow.artifact == artifact.seq)
    models = select(model.model).join(ModelBlobRow, ModelBlobRow.model == model.seq)
    found = [
        f"artifact {id}" for id in session.execute(artifacts.where(ArtifactBlobRow.sha256 == name).limit(3)).scalars()
    ]
    found += [f"model {id}" for id in session.execute(models.where(ModelBlobRow.sha256 == name).limit(3)).scalars()]
    return ", ".join(found)


def _database(session: Session) -> Iterator[tuple[str, str, str]]:
    if session.dialect.name != "sqlite":
        yield from _broken_references(session)
        return
    for (words,) in session.execute(text("PRAGMA integrity_check(20)")).all():
        if words != "ok":
            yield "database", "integrity", str(words)
    for row in session.execute(text("PRAGMA foreign_key_check")).all():
        yield "database", f"table {row[0]}", f"row {row[1]} refers to a row of {row[2]} that is not there"


def _broken_references(session: Session) -> Iterator[tuple[str, str, str]]:
    """A restore that switched the constraints off can leave such rows."""
    for table in schema.tables():
        for key in table.foreign_key_constraints:
            parent, pairs = key.referred_table, [(each.parent, each.column) for each in key.elements]
            found = exists().where(*(theirs == ours for ours, theirs in pairs)).select_from(parent)
            stated = (ours.is_not(None) for ours, _ in pairs)
            lost = session.execute(select(func.count()).select_from(table).where(*stated, ~found)).scalar_one()
            if lost:
                yield (
                    "database",
                    f"table {table.name}",
                    f"{lost} rows refer to rows of {parent.name} that are not there",
                )


def _wrong(manifest_json: str, bound: set[str], artifact: Row | None = None) -> Iterator[str]:
    try:
        manifest = Manifest.from_json(json.loads(manifest_json))
    except (MxrError, ValueError) as problem:
        yield f"its manifest cannot be read: {problem}"
        return
    if canonical(manifest.to_json()) != manifest_json:
        yield "its manifest is not in canonical form"
    if {blob.sha256 for blob in manifest.blobs()} != bound:
        yield "it is not bound to the blobs that its manifest names"
    if artifact is not None and sha256(artifact.key_json.encode()).hexdigest() != artifact.digest:
        yield "its digest is not that of its key"
    elif artifact is not None and artifact_id(artifact.digest, manifest.files) != artifact.id:
        yield "its id is not that of its files"
