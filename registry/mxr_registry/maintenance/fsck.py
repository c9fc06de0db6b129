"""Check the consistency of database and store: every row has its bytes, every stored item has its row."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, exists, func, select, text

from mxr.artifact.manifest import Manifest, artifact_id
from mxr.errors import MxrError, NoSuchBlobError
from mxr.util.codec import canonical, decode
from mxr.util.hashing import sha256_chunks, xxh3_chunks
from mxr_registry.artifacts import lost
from mxr_registry.artifacts.lost import lock_name
from mxr_registry.database import schema, tallies, trail
from mxr_registry.database.session import Database, Row, Session, advisory_lock
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactRow, BlobRow, ModelBlobRow, ModelRow
from mxr_registry.storage.store import Store, StoredItem

DAMAGE = ("database", "row", "missing", "size", "bytes")
"""Kinds of findings that mean lost or damaged data. The other kinds are harmless leftovers."""

BY_PAGES = {"yield_per": 500}
"""Makes a server send rows in pages: the manifests of a million artifacts do not fit into memory."""


@dataclass(frozen=True, slots=True)
class FsckFinding:
    """One inconsistency, and whether it was repaired. `words` describes it."""

    kind: str
    name: str
    words: str
    repaired: bool = False

    @property
    def damage(self) -> bool:
        """Whether this finding means lost or damaged data."""
        return self.kind in DAMAGE

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}: {self.words}{' (repaired)' if self.repaired else ''}"


@dataclass(slots=True)
class FsckReport:
    """The findings, and the number of checked artifacts, models, blobs and stored items."""

    findings: list[FsckFinding] = field(default_factory=list)
    artifacts: int = 0
    models: int = 0
    blobs: int = 0
    stored: int = 0

    @property
    def ok(self) -> bool:
        """Whether no data is lost or damaged. Damaged bytes still count after they were set aside."""
        return not any(finding.damage for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """`{"ok","artifacts","models","blobs","stored","findings":[{"kind","name","words","repaired","damage"}]}`."""
        rows = [asdict(finding) | {"damage": finding.damage} for finding in self.findings]
        counts = {name: getattr(self, name) for name in ("artifacts", "models", "blobs", "stored")}
        return {"ok": self.ok, **counts, "findings": rows}


@dataclass(frozen=True, slots=True)
class Fsck:
    """One check. It calls `on_finding` for each finding. `grace`: age in seconds from which leftovers are removed.

    It notes which blobs are lost, and which are there again: see `mxr_registry.artifacts.lost`. `repair` removes
    old leftovers and rows of unneeded blobs without bytes, and sets damaged bytes aside. `quick` compares the
    XXH3-128 that was recorded when the bytes came: it finds accidental damage, and reads at memory speed.
    """

    db: Database
    store: Store
    grace: float
    on_finding: Callable[[FsckFinding], None]
    repair: bool = False
    quick: bool = False
    report: FsckReport = field(default_factory=FsckReport)

    def run(self) -> FsckReport:
        """Check the database, the rows and the store."""
        with self.db.reading() as session:
            for kind, name, words in _check_database(session):
                self._found(kind, name, words)
            for kind, name, words in self._check_manifests(session):
                self._found(kind, name, words)
            columns = [func.min(getattr(BlobRow, name)).label(name) for name in ("size", "xxh3", "lost_at")]
            rows = session.execute(select(BlobRow.sha256, *columns).group_by(BlobRow.sha256, BlobRow.size)).all()
        self.report.blobs = len(rows)
        for row in rows:
            if self._check_blob(row.sha256, row.size, row.xxh3) and row.lost_at is not None:
                with self.db.writing() as session:
                    lost.note_found(session, row.sha256)
                self._found("found", f"blob {row.sha256}", "its bytes were lost, and are there again", True)
        for item in list(self.store.walk()):
            self._check_stored(item)
        found = self.report.to_json()
        trail.note_run(self.db, "fsck", found | {"findings": len(found["findings"])})
        return self.report

    def _found(self, kind: str, name: str, words: str, repaired: bool = False) -> None:
        finding = FsckFinding(kind, name, words, repaired)
        self.report.findings.append(finding)
        self.on_finding(finding)

    def _check_manifests(self, session: Session) -> Iterator[tuple[str, str, str]]:
        artifact, blob = ArtifactRow, ArtifactBlobRow
        query = select(artifact.seq, artifact.id, artifact.digest, artifact.key_json, artifact.manifest_json)
        for row in session.execute(query, execution_options=BY_PAGES):
            self.report.artifacts += 1
            bound = set(session.execute(select(blob.sha256).where(blob.artifact == row.seq)).scalars())
            for words in _manifest_errors(row.manifest_json, bound, row):
                yield "row", f"artifact {row.id}", words
        models = select(ModelRow.seq, ModelRow.model, ModelRow.manifest_json)
        for seq, model, manifest_json in session.execute(models, execution_options=BY_PAGES):
            self.report.models += 1
            bound = set(session.execute(select(ModelBlobRow.sha256).where(ModelBlobRow.model == seq)).scalars())
            for words in _manifest_errors(manifest_json, bound) if manifest_json else ():
                yield "row", f"model {model}", words

    def _check_blob(self, name: str, size: int, xxh3: str | None) -> bool:
        """Whether a blob is there and intact."""
        stored, intact = self.store.stat(name), False
        try:
            intact = stored == size and self._is_intact(name, xxh3)
        except NoSuchBlobError:
            stored = None  # A sweep removed it meanwhile.
        if stored is None:
            with self.db.reading() as session:
                users = _users(session, name)
            if users:
                lost.note_lost(self.db, self.store, name)
                self._found("missing", f"blob {name}", f"the store lacks its bytes; needed by {users}")
            else:
                words = "a row without bytes, not needed by any artifact or model"
                self._found("unused", f"blob {name}", words, self._delete_row(name))
        elif not intact:
            with self.db.reading() as session:
                users = _users(session, name) or "nothing"
            kind, words = ("bytes", "its bytes do not match its digest")
            if stored != size:
                kind, words = ("size", f"{stored} bytes in the store, {size} in its row")
            self._found(kind, f"blob {name}", f"{words}; needed by {users}", self._set_aside(name))
        return intact

    def _delete_row(self, name: str) -> bool:
        if self.repair:
            with self.db.writing() as session:
                advisory_lock(session, lock_name(name))
                if self.store.stat(name) is not None or _users(session, name):
                    return False
                gone = delete(BlobRow).where(BlobRow.sha256 == name).returning(BlobRow.namespace, BlobRow.size)
                for row in sorted(session.execute(gone).all()):
                    tallies.add(session, row.namespace, tallies.STORED_BYTES, -row.size)
        return self.repair

    def _is_intact(self, name: str, xxh3: str | None) -> bool:
        """Whether the stored bytes match the recorded XXH3-128 if the check is quick, else the sha256.

        Raises `NoSuchBlobError` where they are gone.
        """
        try:
            if self.quick and xxh3 is not None:
                return xxh3_chunks(self.store.read(name)) == xxh3
            return sha256_chunks(self.store.read(name)) == name
        except OSError:
            return False

    def _set_aside(self, name: str) -> bool:
        if self.repair:
            self.store.set_aside(name)
            lost.note_lost(self.db, self.store, name)
        return self.repair

    def _check_stored(self, item: StoredItem) -> None:
        self.report.stored += 1
        old = item.modified < time.time() - self.grace
        if item.sha256 is None:
            if self.repair and old:
                self.store.drop(item)
            self._found("temporary", item.name, "an unfinished upload", self.repair and old)
        elif not self._has_row(item.sha256):
            dropped = self.repair and old and self._drop_orphan(item.sha256)
            self._found("orphan", f"blob {item.sha256}", f"{item.size} bytes without a row", dropped)

    def _has_row(self, name: str) -> bool:
        with self.db.reading() as session:
            return session.execute(select(BlobRow.sha256).where(BlobRow.sha256 == name).limit(1)).first() is not None

    def _drop_orphan(self, name: str) -> bool:
        """Delete the bytes of a blob without a row. The lock keeps an upload of it from writing its row in between."""
        with self.db.writing() as session:
            advisory_lock(session, lock_name(name))
            row = session.execute(select(BlobRow.sha256).where(BlobRow.sha256 == name).limit(1)).first()
            # If an artifact or a model needs the blob, its row is lost: keep the bytes. Another check reports this.
            if row is not None or _users(session, name):
                return False
            self.store.delete(name)
        return True


def _users(session: Session, name: str) -> str:
    """List the first few artifacts and models that contain a blob; empty if there are none."""
    artifact, model = ArtifactRow, ModelRow
    artifacts = select(artifact.id).join(ArtifactBlobRow, ArtifactBlobRow.artifact == artifact.seq)
    models = select(model.model).join(ModelBlobRow, ModelBlobRow.model == model.seq)
    found = [
        f"artifact {id}" for id in session.execute(artifacts.where(ArtifactBlobRow.sha256 == name).limit(3)).scalars()
    ]
    found += [f"model {id}" for id in session.execute(models.where(ModelBlobRow.sha256 == name).limit(3)).scalars()]
    return ", ".join(found)


def _check_database(session: Session) -> Iterator[tuple[str, str, str]]:
    if session.dialect.name != "sqlite":
        yield from _broken_references(session)
        return
    for (words,) in session.execute(text("PRAGMA integrity_check(20)")).all():
        if words != "ok":
            yield "database", "integrity", str(words)
    for row in session.execute(text("PRAGMA foreign_key_check")).all():
        yield "database", f"table {row[0]}", f"row {row[1]} refers to a missing row of {row[2]}"


def _broken_references(session: Session) -> Iterator[tuple[str, str, str]]:
    """Find rows with broken foreign keys, which a restore with disabled constraints can leave."""
    for table in schema.tables():
        for key in table.foreign_key_constraints:
            parent, pairs = key.referred_table, [(element.parent, element.column) for element in key.elements]
            found = exists().where(*(theirs == ours for ours, theirs in pairs)).select_from(parent)
            stated = (ours.is_not(None) for ours, _ in pairs)
            lost = session.execute(select(func.count()).select_from(table).where(*stated, ~found)).scalar_one()
            if lost:
                yield (
                    "database",
                    f"table {table.name}",
                    f"{lost} rows refer to missing rows of {parent.name}",
                )


def _manifest_errors(manifest_json: str, bound: set[str], artifact: Row | None = None) -> Iterator[str]:
    try:
        manifest = decode(Manifest, json.loads(manifest_json), "manifest")
    except (MxrError, ValueError) as problem:
        yield f"its manifest cannot be read: {problem}"
        return
    if canonical(manifest.to_json()) != manifest_json:
        yield "its manifest is not in canonical form"
    if {blob.sha256 for blob in manifest.blobs()} != bound:
        yield "its blob references differ from its manifest"
    if artifact is not None and sha256(artifact.key_json.encode()).hexdigest() != artifact.digest:
        yield "its digest does not match its key"
    elif artifact is not None and artifact_id(artifact.digest, manifest.files) != artifact.id:
        yield "its id does not match its files"
