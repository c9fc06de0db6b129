"""The tables for compile jobs and workers.

    jobs ──< job_events, attempts, job_logs, job_askers        workers        failures        counters

A job's `rank` is its negated priority, so that ascending order puts the next job first. `version` is the number of the
last change visible to clients, `touched` that of the last change of any kind. Both come from one counter in the
database: a process finds the changes of other processes by selecting larger numbers.
"""

from __future__ import annotations

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, LargeBinary, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from .tables import Base, Hash, ModelIdentity, Namespace, Serial, Word

OPEN = text("state IN ('queued', 'running')")
LATER = text("next_at > 0")


class JobRow(Base):
    """A compile job. `terms` is the sha256 of the canonical constraints. `file_name`, used with keys of ONNX Runtime's
    form, is the name under which ONNX Runtime opens the model.

    `fence` grows with every claim. `lease` is the sha256 of the secret of the last lease, which a repeated finish has
    after the end, too. `attempts` counts the claims that were not handed back, `lost` the leases lost in a row.
    `pinned_json` holds the attributes of the program that the claiming worker makes. `avoid` is the worker on which the
    job failed last, `refused_by` the one that said that it cannot be compiled at all. `suspect` is the host on which
    its compile crashed: the next attempt is alone on its host, and on another one if one is live that could.
    """

    __tablename__ = "jobs"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    id: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(20))
    digest: Mapped[str] = mapped_column(Hash)
    terms: Mapped[str] = mapped_column(Hash)
    model: Mapped[str] = mapped_column(ModelIdentity)
    arch: Mapped[str | None] = mapped_column(Word)
    lane: Mapped[str] = mapped_column(String(600))
    rank: Mapped[int]
    key_json: Mapped[str] = mapped_column(Text)
    constraints_json: Mapped[str] = mapped_column(Text)
    calibration: Mapped[str | None] = mapped_column(Hash)
    file_name: Mapped[str | None] = mapped_column(Text)
    attempts: Mapped[int]
    fence: Mapped[int]
    lease: Mapped[str | None] = mapped_column(Hash)
    refused_by: Mapped[str | None] = mapped_column(String(32))
    suspect: Mapped[str | None] = mapped_column(String(200))
    lost: Mapped[int]
    version: Mapped[int]
    touched: Mapped[int]
    phase: Mapped[str | None] = mapped_column(String(40))
    worker: Mapped[str | None] = mapped_column(String(32))
    worker_name: Mapped[str | None] = mapped_column(String(200))
    toolchain_json: Mapped[str | None] = mapped_column(Text)
    pinned_json: Mapped[str | None] = mapped_column(Text)
    next_at: Mapped[float]
    lease_until: Mapped[float | None]
    cancelling: Mapped[bool]
    avoid: Mapped[str | None] = mapped_column(String(32))
    artifact: Mapped[str | None] = mapped_column(Hash)
    failure_json: Mapped[str | None] = mapped_column(Text)
    seconds: Mapped[float | None]
    log_size: Mapped[int]
    created_at: Mapped[float]
    updated_at: Mapped[float]
    started_at: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("namespace", "id"),
        ForeignKeyConstraint(["namespace", "calibration"], ["blobs.namespace", "blobs.sha256"]),
        Index(
            "uq_jobs_open",
            "namespace",
            "digest",
            "terms",
            unique=True,
            sqlite_where=OPEN,
            postgresql_where=OPEN,
        ),
        Index(None, "namespace", "digest", "seq"),
        Index(None, "namespace", "state", "lane", "rank", "seq"),
        Index(None, "namespace", "model", "seq"),
        Index(None, "namespace", "seq"),
        Index(None, "state", "lease_until"),
        Index("ix_jobs_later", "next_at", sqlite_where=LATER, postgresql_where=LATER),
        Index(None, "state", "worker"),
        Index(None, "touched"),
        {"sqlite_autoincrement": True},
    )


class JobEventRow(Base):
    """One change of a job's state. `detail_json`: details of a failure that the worker reported with its message."""

    __tablename__ = "job_events"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    job: Mapped[int] = mapped_column(Serial, ForeignKey("jobs.seq", ondelete="CASCADE"))
    at: Mapped[float]
    state: Mapped[str] = mapped_column(String(20))
    worker: Mapped[str | None] = mapped_column(String(200))
    note: Mapped[str] = mapped_column(Text)
    detail_json: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (Index(None, "job", "seq"), {"sqlite_autoincrement": True})


class AttemptRow(Base):
    """One attempt of a worker at a job. `state`: what the job became then; null while it runs, `note` tells more.

    `phases_json`: `[[PHASE, BEGAN], ...]` in seconds since 1970, as heartbeats reported them.
    """

    __tablename__ = "attempts"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    job: Mapped[int] = mapped_column(Serial, ForeignKey("jobs.seq", ondelete="CASCADE"))
    namespace: Mapped[str] = mapped_column(Namespace)
    worker: Mapped[str] = mapped_column(String(200))
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
    state: Mapped[str | None] = mapped_column(String(20))
    note: Mapped[str | None] = mapped_column(Text)
    phases_json: Mapped[str] = mapped_column(Text)

    __table_args__ = (
        Index(None, "job", "seq"),
        Index(None, "namespace", "ended_at"),
        {"sqlite_autoincrement": True},
    )


class JobAskerRow(Base):
    """A principal that asked for a job. `withdrawn`: it does not need the result any more."""

    __tablename__ = "job_askers"

    job: Mapped[int] = mapped_column(Serial, ForeignKey("jobs.seq", ondelete="CASCADE"), primary_key=True)
    principal: Mapped[str] = mapped_column(Namespace, primary_key=True)
    withdrawn: Mapped[bool]

    __table_args__ = (Index(None, "principal", "job"),)


class JobLogRow(Base):
    """A chunk of a job's log. `start` is its offset and `size` its length, both in bytes of UTF-8."""

    __tablename__ = "job_logs"

    job: Mapped[int] = mapped_column(Serial, ForeignKey("jobs.seq", ondelete="CASCADE"), primary_key=True)
    start: Mapped[int] = mapped_column(Serial, primary_key=True)
    size: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)


class WorkerRow(Base):
    """A registered worker. `toolchain` is the sha256 of the canonical JSON of its toolchain.

    `credential`: the sha256 of its secret, by which it is known; null in rows of the release before revision 0004.
    `left_at`: when it signed off, or null. `created_by`: the principal that registered it last.
    """

    __tablename__ = "workers"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True)
    namespace: Mapped[str] = mapped_column(Namespace)
    id: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(200))
    credential: Mapped[str | None] = mapped_column(Hash)
    can_json: Mapped[str] = mapped_column(Text)
    toolchain: Mapped[str] = mapped_column(Hash)
    toolchain_json: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Namespace)
    seen_at: Mapped[float]
    left_at: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("namespace", "id"),
        UniqueConstraint("namespace", "name"),
        Index(None, "namespace", "credential"),
        Index(None, "namespace", "seen_at"),
        {"sqlite_autoincrement": True},
    )


class RememberedFailureRow(Base):
    """A remembered failure of a request on a toolchain, valid until `expires_at`."""

    __tablename__ = "failures"

    namespace: Mapped[str] = mapped_column(Namespace, primary_key=True)
    digest: Mapped[str] = mapped_column(Hash, primary_key=True)
    terms: Mapped[str] = mapped_column(Hash, primary_key=True)
    toolchain: Mapped[str] = mapped_column(Hash, primary_key=True)
    toolchain_json: Mapped[str] = mapped_column(Text)
    failure_json: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    expires_at: Mapped[float]


class CounterRow(Base):
    """A counter that only grows. `jobs` counts the changes of all jobs."""

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    value: Mapped[int]
