"""The tables for artifacts, models, blobs, uses, misses, locks, tokens, sessions and the identity.

Constraints guarantee all uniqueness.

    models ──< model_blobs >── blobs ──< uploads
                                   ^
                                   └──< artifact_blobs >── artifacts ──< artifact_inputs, uses        misses
                                                                     ├──< lock_artifacts >── locks        namespaces
                                                                     └──< statements         signing_keys

    misses ──< miss_askers        tallies        sessions        recalls

A blob's row is written after its bytes are in the store. Models and artifacts refer to blob rows by foreign key: if a
blob is swept at the same time, the writer fails, and no row refers to a missing blob. Columns that end in `_json` hold
canonical JSON, which replies contain unchanged. Times are seconds since 1970 by the database's clock.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

Serial = BigInteger().with_variant(Integer, "sqlite")
"""An autoincrement column. SQLite supports autoincrement only in columns of type INTEGER."""

Namespace = String(100)
Hash = String(64)
Word = String(250)
ModelIdentity = String(71)
"""The identity of a model: "sha256:" and 64 hex digits."""

ModelName = Text().with_variant(Text(collation="C"), "postgresql")
"""The name of a model: a label. It is compared by code points, so that an index finds the names with a prefix."""


LOST = text("lost_at IS NOT NULL")
"""The condition of an index: hardly any artifact is lost."""


class Base(DeclarativeBase):
    """Base of all tables. Its naming convention gives constraints the names that migrations refer to."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {float: Double, int: BigInteger}


class RegistryRow(Base):
    """The identity of this database, in one row. Its migration makes a random UUID, which never changes.

    Every reply carries it, so that clients notice when another registry answers at a known URL. `compatible` is the
    oldest revision whose release works on this schema: a migration that takes something away raises it.
    """

    __tablename__ = "registry"

    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(String(36))
    compatible: Mapped[str] = mapped_column(String(4), server_default="0001")


class NamespaceRow(Base):
    """A namespace with settings of its own. `serve`: which artifacts answer requests; null: as the process decides.

    `defaults_json`: its request defaults, in the form of `GET /v1/defaults`; null: none. `recall_sequence`: the number
    of the last change of its recall list; null: nothing was ever recalled.
    """

    __tablename__ = "namespaces"

    name: Mapped[str] = mapped_column(Namespace, primary_key=True)
    serve: Mapped[str | None] = mapped_column(String(20))
    created_at: Mapped[float]
    defaults_json: Mapped[str | None] = mapped_column(String(1000))
    recall_sequence: Mapped[int | None]


class TokenRow(Base):
    """A token of the principal `name`. `sha256` is that of the whole token, which the registry does not keep.

    `scopes` are separated by spaces. `used_at` is accurate to a minute; `used_with`: the `User-Agent` of that use.
    The store keeps the ids of revoked tokens too, so that a restored backup of the database does not make one valid
    again.
    """

    __tablename__ = "tokens"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    id: Mapped[str] = mapped_column(String(12))
    namespace: Mapped[str] = mapped_column(Namespace)
    name: Mapped[str] = mapped_column(Namespace)
    scopes: Mapped[str] = mapped_column(Word)
    sha256: Mapped[str] = mapped_column(Hash)
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Namespace)
    expires_at: Mapped[float | None]
    used_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    used_with: Mapped[str | None] = mapped_column(String(100))

    __table_args__ = (UniqueConstraint("id"), Index(None, "name", "seq"), {"sqlite_autoincrement": True})


class BlobRow(Base):
    """A blob that a namespace uploaded.

    `xxh3`: XXH3-128 of its bytes in hex, computed while its sha256 was checked. It finds accidental damage quickly and
    identifies nothing.
    `touched_at`: when it was last reported as present or lost a reference. No sweep removes it within the grace period
    after that. `lost_at`: when its bytes were missing or damaged in the store; null while they are there.
    """

    __tablename__ = "blobs"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    size: Mapped[int]
    created_at: Mapped[float]
    touched_at: Mapped[float]
    xxh3: Mapped[str | None] = mapped_column(String(32))
    lost_at: Mapped[float | None]

    __table_args__ = (Index(None, "sha256"),)


class UploadRow(Base):
    """A principal that uploaded a blob, and so has its bytes. Only it, and administrators, can refer to the blob."""

    __tablename__ = "uploads"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    principal: Mapped[str] = mapped_column(Namespace, primary_key=True)
    uploaded_at: Mapped[float]

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"], ondelete="CASCADE"),
    )


class ModelRow(Base):
    """A model whose bytes the namespace uploaded. `complete`: they are still in the store.

    `graph` is the digest of its graph without weights, `told_json` the description read from its ONNX file. Both are
    null if the file was not read.
    """

    __tablename__ = "models"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    model: Mapped[str] = mapped_column(ModelIdentity)
    name: Mapped[str] = mapped_column(ModelName)
    inputs_json: Mapped[str] = mapped_column(Text)
    complete: Mapped[bool]
    onnx: Mapped[str | None] = mapped_column(Text)
    manifest_json: Mapped[str | None] = mapped_column(Text)
    graph: Mapped[str | None] = mapped_column(Hash)
    told_json: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Namespace)

    __table_args__ = (
        UniqueConstraint("namespace", "model"),
        Index(None, "namespace", "graph", "seq"),
        Index(None, "namespace", "name"),
        {"sqlite_autoincrement": True},
    )


class ModelBlobRow(Base):
    """The blobs of a complete model."""

    __tablename__ = "model_blobs"

    model: Mapped[int] = mapped_column(Serial, ForeignKey("models.seq", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"]),
        Index(None, "namespace", "sha256"),
    )


class ArtifactRow(Base):
    """A published artifact. `seq` is the order of publication, `promoted` the order of promotion (0: not promoted).

    `origin`, `created_by`, `job` and `worker` are what the registry knows of the publication, `provenance_json` is what
    the publisher said, and `claim_json` what the publisher says about the model. `fixed_digest` is the digest of the
    facts that a request never leaves open (`Key.fixed_digest`). `model_name` is a label: what the publisher calls the
    model, or the name with which it was registered. `sources_json` tells who states each fact. `changed_at`: when the
    facts were last replaced. `restored_at`, `restored_by`: its last return after a removal. `used_at`: the last use,
    accurate to some seconds, or the time of publication if it was never used. `lost_at`: since when a blob of it is
    lost; it answers no request then. `recall_json`: what was said of it (`RecallRow`); null: nothing.
    """

    __tablename__ = "artifacts"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    id: Mapped[str] = mapped_column(Hash)
    digest: Mapped[str] = mapped_column(Hash)
    model: Mapped[str] = mapped_column(ModelIdentity)
    kind: Mapped[str] = mapped_column(Word)
    vendor: Mapped[str | None] = mapped_column(Word)
    arch: Mapped[str | None] = mapped_column(Word)
    migraphx: Mapped[str] = mapped_column(Word)
    rocm: Mapped[str | None] = mapped_column(Word)
    precision: Mapped[str] = mapped_column(Word)
    sha256: Mapped[str] = mapped_column(Hash)
    size: Mapped[int]
    key_json: Mapped[str] = mapped_column(Text)
    attributes_json: Mapped[str] = mapped_column(Text)
    provenance_json: Mapped[str] = mapped_column(Text)
    sources_json: Mapped[str] = mapped_column(Text)
    origin: Mapped[str] = mapped_column(String(20))
    created_by: Mapped[str] = mapped_column(Word)
    job: Mapped[str | None] = mapped_column(String(32))
    worker: Mapped[str | None] = mapped_column(String(200))
    names_json: Mapped[str] = mapped_column(Text)
    published_at: Mapped[float]
    changed_at: Mapped[float | None]
    restored_at: Mapped[float | None]
    restored_by: Mapped[str | None] = mapped_column(Word)
    used_at: Mapped[float]
    promoted_at: Mapped[float | None]
    promoted: Mapped[int]
    manifest_json: Mapped[str] = mapped_column(Text)
    description_json: Mapped[str | None] = mapped_column(Text)
    claim_json: Mapped[str | None] = mapped_column(Text)
    model_name: Mapped[str | None] = mapped_column(ModelName)
    fixed_digest: Mapped[str] = mapped_column(Hash)
    lost_at: Mapped[float | None]
    recall_json: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        UniqueConstraint("namespace", "id"),
        Index(None, "namespace", "digest"),
        Index(None, "namespace", "sha256"),
        Index(None, "namespace", "fixed_digest", "seq"),
        Index(None, "namespace", "seq"),
        Index(None, "namespace", "used_at"),
        Index(None, "namespace", "model", "seq"),
        Index(None, "namespace", "model", "arch", "seq"),
        Index(None, "namespace", "arch", "seq"),
        Index(None, "namespace", "model_name", "seq"),
        Index("ix_artifacts_lost_at", "lost_at", sqlite_where=LOST, postgresql_where=LOST),
        {"sqlite_autoincrement": True},
    )


class TombstoneRow(Base):
    """An artifact that somebody removed, and that nobody published again since. Retention leaves none."""

    __tablename__ = "tombstones"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    id: Mapped[str] = mapped_column(Hash, primary_key=True)
    removed_at: Mapped[float]
    removed_by: Mapped[str] = mapped_column(Word)


class RecallRow(Base):
    """An artifact that was yanked or quarantined: a `mxr.artifact.recall.Recall`. It outlives the artifact."""

    __tablename__ = "recalls"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    id: Mapped[str] = mapped_column(Hash, primary_key=True)
    recall_json: Mapped[str] = mapped_column(Text)


class SigningKeyRow(Base):
    """A public key of the registry or of a worker (`role`). `state`: a word of `KEY_STATES`; `ended_at`: since when.

    `endorsement_json`: the envelope in which a key before it says that it belongs to the same registry. `name`: what
    the operator calls the workers that have it.
    """

    __tablename__ = "signing_keys"

    id: Mapped[str] = mapped_column(Hash, primary_key=True)
    public_key: Mapped[str] = mapped_column(String(500))
    state: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[float]
    ended_at: Mapped[float | None]
    endorsement_json: Mapped[str | None] = mapped_column(Text)
    role: Mapped[str] = mapped_column(String(10), server_default="registry")
    name: Mapped[str | None] = mapped_column(Namespace)


class StatementRow(Base):
    """What was signed of an artifact: an envelope. `key`: who signed it; `kind`: the type of what it says.

    `imported`: somebody brought it, so that nothing of it is verified, and `key` is empty; `bundle_json`: the bundle of
    sigstore that has it.
    """

    __tablename__ = "statements"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"))
    key: Mapped[str] = mapped_column(Hash)
    kind: Mapped[str] = mapped_column(Namespace)
    created_at: Mapped[float]
    envelope_json: Mapped[str] = mapped_column(Text)
    imported: Mapped[bool] = mapped_column(server_default=false())
    bundle_json: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (Index(None, "artifact", "seq"), {"sqlite_autoincrement": True})


class ArtifactBlobRow(Base):
    """The blobs of an artifact."""

    __tablename__ = "artifact_blobs"

    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"]),
        Index(None, "namespace", "sha256"),
    )


class ArtifactInputRow(Base):
    """The input names of an artifact, for the filter `input`."""

    __tablename__ = "artifact_inputs"

    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)

    __table_args__ = (Index(None, "name"),)


class UseRow(Base):
    """Uses of an artifact on one day (days since 1970), with the time of the last use on that day."""

    __tablename__ = "uses"

    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"), primary_key=True)
    day: Mapped[int] = mapped_column(Integer, primary_key=True)
    count: Mapped[int]
    used_at: Mapped[float]

    __table_args__ = (Index(None, "day"),)


class MissRow(Base):
    """A request that found no artifact, complete or partial. `request` is the sha256 of its canonical JSON.

    `reason`: a word of `mxr.artifact.records.REASONS`. `called`: what the client that asked last calls the model.
    `accept_json`: the change of the request with which the nearest artifact satisfies it; `open_json`: the facts that
    it leaves open. `hosts`: how many hosts asked, as far as they are kept (`MissAskerRow`). The columns that can be
    null are null in rows of the release before revision 0003, `called` in those before 0004.
    """

    __tablename__ = "misses"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    request: Mapped[str] = mapped_column(Hash, primary_key=True)
    digest: Mapped[str] = mapped_column(Hash)
    request_json: Mapped[str] = mapped_column(Text)
    nearest_json: Mapped[str] = mapped_column(Text)
    count: Mapped[int]
    first_at: Mapped[float]
    last_at: Mapped[float]
    model: Mapped[str | None] = mapped_column(ModelIdentity)
    arch: Mapped[str | None] = mapped_column(Word)
    reason: Mapped[str | None] = mapped_column(String(20))
    called: Mapped[str | None] = mapped_column(ModelName)
    accept_json: Mapped[str | None] = mapped_column(Text)
    open_json: Mapped[str | None] = mapped_column(Text)
    hosts: Mapped[int] = mapped_column(Integer, server_default="0")

    __table_args__ = (Index(None, "namespace", "last_at"),)


class MissAskerRow(Base):
    """A host that made a request without an artifact, with a token of this principal. `host`: as it calls itself."""

    __tablename__ = "miss_askers"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    request: Mapped[str] = mapped_column(Hash, primary_key=True)
    principal: Mapped[str] = mapped_column(Namespace, primary_key=True)
    host: Mapped[str] = mapped_column(Word, primary_key=True)
    count: Mapped[int]
    first_at: Mapped[float]
    last_at: Mapped[float]

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "request"], ["misses.namespace", "misses.request"], ondelete="CASCADE"),
        Index(None, "namespace", "last_at"),
    )


class TallyRow(Base):
    """A count in one hour (hours since 1970); in hour 0, a sum that is kept up to date. Names: `tallies.NAMES`."""

    __tablename__ = "tallies"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    hour: Mapped[int] = mapped_column(Integer, primary_key=True)
    value: Mapped[int]

    __table_args__ = (Index(None, "hour"),)


class SessionRow(Base):
    """A browser that signed in, or a link that signs one in once (`link`). `sha256` is that of its secret.

    `token`: the id of the token that it stands for, with which it ends; empty for the registry's own user.
    """

    __tablename__ = "sessions"

    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    token: Mapped[str] = mapped_column(String(12))
    link: Mapped[bool]
    created_at: Mapped[float]
    expires_at: Mapped[float]

    __table_args__ = (Index(None, "token", "created_at"), Index(None, "expires_at"))


class EventRow(Base):
    """What somebody did: a row of the trail. `principal`, `address`: who, and from where. `subject`: to what.

    It refers to no other row, because it outlives what it tells of. Runs of maintenance have no namespace.
    """

    __tablename__ = "events"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    at: Mapped[float]
    kind: Mapped[str] = mapped_column(String(40))
    principal: Mapped[str] = mapped_column(Namespace)
    address: Mapped[str] = mapped_column(Namespace)
    subject: Mapped[str] = mapped_column(String(200))
    model: Mapped[str | None] = mapped_column(ModelIdentity)
    detail_json: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        Index(None, "namespace", "seq"),
        Index(None, "namespace", "subject"),
        Index(None, "namespace", "model", "seq"),
        Index(None, "kind", "at"),
        {"sqlite_autoincrement": True},
    )


class LockRow(Base):
    """A registered lock. Its artifacts cannot be removed while it exists. `created_by`: the principal it belongs to."""

    __tablename__ = "locks"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    name: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Namespace)
    updated_at: Mapped[float]

    __table_args__ = (UniqueConstraint("namespace", "name"), {"sqlite_autoincrement": True})


class LockRevisionRow(Base):
    """A lock that a tag names, or named. `lock`: the row that pins for the tag. `repeats`: what it went back to."""

    __tablename__ = "lock_revisions"

    lock: Mapped[int] = mapped_column(Serial, ForeignKey("locks.seq", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash)
    text: Mapped[str] = mapped_column(Text)
    artifacts: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Namespace)
    repeats: Mapped[int | None] = mapped_column(Integer)


class LockArtifactRow(Base):
    """The artifacts that a lock pins. The foreign key has no cascade, so the database itself prevents their removal."""

    __tablename__ = "lock_artifacts"

    lock: Mapped[int] = mapped_column(Serial, ForeignKey("locks.seq", ondelete="CASCADE"), primary_key=True)
    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq"), primary_key=True)

    __table_args__ = (Index(None, "artifact"),)
