"""The tables of the registry. Every row carries a namespace; what must be unique is so by constraint, never by hope.

    models ──< model_blobs >── blobs ──< artifact_blobs >── artifacts ──< artifact_inputs, uses        misses
                                                                     └──< lock_artifacts >── locks

A blob's row is written after its bytes are in the store, and whatever is made of blobs refers to their rows by foreign
key: a blob that is swept meanwhile makes the writer fail, never leaves a row that points to nothing. Columns that end
in `_json` hold canonical JSON, which replies repeat as it is. Times are seconds since 1970 by the database's clock.
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
"""SQLite counts up by itself only in a column of type INTEGER."""

Namespace = String(100)
Hash = String(64)
Word = String(250)


class Base(DeclarativeBase):
    """All tables, under one naming of constraints, so that later migrations can name them."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {float: Double, int: BigInteger}


class BlobRow(Base):
    """Bytes that this namespace brought. `touched_at`: when it was last said to be here, which protects it a while."""

    __tablename__ = "blobs"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    size: Mapped[int]
    created_at: Mapped[float]
    touched_at: Mapped[float]

    __table_args__ = (Index(None, "sha256"),)


class ModelRow(Base):
    """A model: `sha256` is its identity. `complete`: its bytes are here and gave this hash; else only a statement.

    `graph` is the digest of its graph without weights, `told_json` what its ONNX file says of itself; both are null
    where that was not read.
    """

    __tablename__ = "models"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    model: Mapped[str] = mapped_column(String(37))
    sha256: Mapped[str] = mapped_column(Hash)
    name: Mapped[str] = mapped_column(Text)
    inputs_json: Mapped[str] = mapped_column(Text)
    complete: Mapped[bool]
    onnx: Mapped[str | None] = mapped_column(Text)
    manifest_json: Mapped[str | None] = mapped_column(Text)
    graph: Mapped[str | None] = mapped_column(Hash)
    told_json: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[float]

    __table_args__ = (
        UniqueConstraint("namespace", "model"),
        Index(None, "namespace", "graph", "seq"),
        {"sqlite_autoincrement": True},
    )


class ModelBlobRow(Base):
    """Which blobs a complete model is made of."""

    __tablename__ = "model_blobs"

    model: Mapped[int] = mapped_column(Serial, ForeignKey("models.seq", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"]),
        Index(None, "namespace", "sha256"),
    )


class ArtifactRow(Base):
    """A published artifact. `seq` is the order of publication, `promoted` that of promotions (0 is never).

    `used_at`: when it was last used, to some seconds; of one that never was, when it was published.
    """

    __tablename__ = "artifacts"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    id: Mapped[str] = mapped_column(Hash)
    digest: Mapped[str] = mapped_column(Hash)
    model: Mapped[str] = mapped_column(String(37))
    kind: Mapped[str] = mapped_column(Word)
    vendor: Mapped[str | None] = mapped_column(Word)
    arch: Mapped[str | None] = mapped_column(Word)
    migraphx: Mapped[str] = mapped_column(Word)
    rocm: Mapped[str | None] = mapped_column(Word)
    precision: Mapped[str] = mapped_column(Word)
    sha256: Mapped[str] = mapped_column(Hash)
    size: Mapped[int]
    key_json: Mapped[str] = mapped_column(Text)
    qualities_json: Mapped[str] = mapped_column(Text)
    provenance_json: Mapped[str] = mapped_column(Text)
    stated_json: Mapped[str] = mapped_column(Text)
    names_json: Mapped[str] = mapped_column(Text)
    published_at: Mapped[float]
    used_at: Mapped[float] = mapped_column(server_default="0")
    promoted_at: Mapped[float | None]
    promoted: Mapped[int]
    manifest_json: Mapped[str] = mapped_column(Text)
    description_json: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        UniqueConstraint("namespace", "id"),
        Index(None, "namespace", "digest"),
        Index(None, "namespace", "seq"),
        Index(None, "namespace", "used_at"),
        Index(None, "namespace", "model", "seq"),
        Index(None, "namespace", "model", "arch", "seq"),
        Index(None, "namespace", "arch", "seq"),
        {"sqlite_autoincrement": True},
    )


class ArtifactBlobRow(Base):
    """Which blobs an artifact is made of."""

    __tablename__ = "artifact_blobs"

    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(Hash, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"]),
        Index(None, "namespace", "sha256"),
    )


class ArtifactInputRow(Base):
    """The names of an artifact's inputs, to find it by."""

    __tablename__ = "artifact_inputs"

    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)

    __table_args__ = (Index(None, "name"),)


class UseRow(Base):
    """Uses of an artifact on one day (days since 1970), with the time of the last one."""

    __tablename__ = "uses"

    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq", ondelete="CASCADE"), primary_key=True)
    day: Mapped[int] = mapped_column(Integer, primary_key=True)
    count: Mapped[int]
    used_at: Mapped[float]

    __table_args__ = (Index(None, "day"),)


class MissRow(Base):
    """A request that found nothing. `request` is the sha256 of its canonical text."""

    __tablename__ = "misses"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    request: Mapped[str] = mapped_column(Hash, primary_key=True)
    digest: Mapped[str] = mapped_column(Hash)
    request_json: Mapped[str] = mapped_column(Text)
    nearest_json: Mapped[str] = mapped_column(Text)
    count: Mapped[int]
    first_at: Mapped[float]
    last_at: Mapped[float]

    __table_args__ = (Index(None, "namespace", "last_at"),)


class LockRow(Base):
    """A registered lock: while it stands, its artifacts stay."""

    __tablename__ = "locks"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    name: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[float]
    updated_at: Mapped[float]

    __table_args__ = (UniqueConstraint("namespace", "name"), {"sqlite_autoincrement": True})


class LockArtifactRow(Base):
    """Which artifacts a lock pins. It refers to them without a cascade: the database itself keeps them."""

    __tablename__ = "lock_artifacts"

    lock: Mapped[int] = mapped_column(Serial, ForeignKey("locks.seq", ondelete="CASCADE"), primary_key=True)
    artifact: Mapped[int] = mapped_column(Serial, ForeignKey("artifacts.seq"), primary_key=True)

    __table_args__ = (Index(None, "artifact"),)
