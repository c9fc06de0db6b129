"""A partition of the cache: what one registry answered in one namespace, or what bundles brought.

    <partition>/artifacts/<digest>/<id>.json    {"artifact", "etag", "confirmed_at", "gone"}
    <partition>/answers/ab/<request>.json       {"digest", "id", "match", "etag"}, or {"miss": true}
    <partition>/completions/ab/<request>.json   {"id"}: the only program that a partial request meant
    <partition>/models/<hash>.json              the inputs of a model, for requests by hash
    <partition>/defaults.json                   {"defaults", "confirmed_at"}: the request defaults of the namespace
    <partition>/tags/<name>.json                {"tag", "etag", "confirmed_at"}: what a tag names
    <partition>/statements/<id>.json            {"envelopes"}: what was signed of an artifact, see `proofs`
    <partition>/recalls/<name>.json             {"sequence", "items", "expires_at", "rule"}: a recall list: of the
                                                registry, or of each registry whose bundles were imported

Programs themselves are not in partitions: their sha256 is their name. What a partition says decides what is served.
`CachePolicy` says whose answers serve, and for how long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.attributes import Request
from mxr.artifact.key import MODEL, MODEL_PREFIX
from mxr.artifact.manifest import check_sha256
from mxr.artifact.matching import Match
from mxr.artifact.recall import Recall
from mxr.artifact.records import Artifact, Model
from mxr.errors import Json, MxrError
from mxr.util import codec
from mxr.util.frozen import dataclass

from .folder import CacheFolder

if TYPE_CHECKING:
    from mxr.artifact.recall import Recalled
    from mxr.protocol.tags import Tag
    from mxr.settings import Settings
    from mxr.trust.envelope import Envelope

OWN = "own"
"""The name of the recall list of the registry of a partition."""


def list_name(registry: str, namespace: str) -> str:
    """Return the name of the recall list of another registry, which a bundle brought."""
    return sha256(f"{registry}\n{namespace}".encode()).hexdigest()[:32]


MAX_ENVELOPES = 100
"""Signed records of one artifact that are kept."""


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """The rules of one cache.

    `registry`: URL. `registry_id`: the only registry that may answer there; empty: the one that is known. `owners`:
    users, besides this one and root, whose cache folder is read. `max_age`: seconds after which the registry must
    confirm an answer. `max_stale`: seconds for which answers serve while the registry is away. `size`: bytes
    of the programs that stay when others come; 0: no limit. `private`: a folder of this user for the memo, where the
    cache belongs to someone else. `config`: the folder of this user's configuration, which says what must be signed.
    """

    registry: str = ""
    registry_id: str = ""
    namespace: str = "default"
    owners: tuple[int, ...] = ()
    max_age: float = 3600.0
    max_stale: float = 7 * 86400.0
    size: int = 0
    private: Path | None = None
    config: Path | None = None

    @classmethod
    def of(cls, settings: Settings) -> CachePolicy:
        """Return the policy in the settings of a client."""
        return cls(
            registry=settings.registry,
            registry_id=settings.registry_id or "",
            owners=settings.cache_owners,
            max_age=settings.max_age,
            max_stale=settings.max_stale,
            size=settings.cache_size,
            private=settings.state_dir,
            config=settings.config_dir,
        )

    @property
    def url(self) -> str:
        """The URL of the registry without user name and password."""
        scheme, colon, rest = self.registry.partition("://")
        host, slash, path = rest.partition("/")
        return scheme + colon + host.rpartition("@")[2] + slash + path

    @property
    def home(self) -> str:
        """The name of the folder for this registry URL and namespace."""
        return sha256(f"{self.url}\n{self.namespace}".encode()).hexdigest()[:32]


REMOVED = "removed"
"""The registry's last word on an artifact that it no longer has."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The artifact that a request got, and how well it matched."""

    artifact: Artifact
    match: Match


@dataclass(frozen=True, slots=True)
class CachedArtifact:
    """The record of an artifact. `age`: seconds since the registry confirmed it last; None if it never did.

    `etag`: its entity tag at that time. `gone`: why the registry no longer serves it; None if it does. `imported`: a
    bundle brought it, so that it serves without a registry, whatever its age.
    """

    artifact: Artifact
    etag: str = ""
    age: float | None = None
    gone: str | None = None
    imported: bool = False

    @property
    def refused(self) -> str | None:
        """The registry's last word, if nobody may get the artifact: that it removed it, or quarantined it."""
        recall = self.artifact.recall
        return recall.word if recall is not None and recall.refuses else self.gone


@dataclass(frozen=True, slots=True)
class CachedTag:
    """What a tag names. `etag`: its entity tag. `age`: seconds since the registry said so."""

    tag: Tag
    etag: str
    age: float


class CacheState(Enum):
    """How the cache may serve an artifact of which it has a record, or none."""

    FRESH = "fresh"
    """At once: the registry confirmed it within `max_age`."""
    UNCONFIRMED = "unconfirmed"
    """When the registry confirms it, or with a warning while the registry is away."""
    EXPIRED = "expired"
    """Only when the registry confirms it."""
    RELAXED = "relaxed"
    """With a warning while the registry is away: something was relaxed, and a better program may be there by now."""
    UNSUITABLE = "unsuitable"
    """Only offline: files of it are missing, or it is too old for what was relaxed."""
    GONE = "gone"
    """Not at all: the registry removed or quarantined it."""
    ABSENT = "absent"
    """Not at all: there is no record."""


CONFIRMABLE = (CacheState.FRESH, CacheState.UNCONFIRMED, CacheState.EXPIRED)
"""The states in which an artifact serves when the registry confirms it."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The answer to a request and the record of its artifact. `state`: how it may serve, by the policy of the cache."""

    answer: Answer
    record: CachedArtifact
    state: CacheState = CacheState.UNSUITABLE


class Partition:
    """The records below one folder of the cache. Reading never fails: damaged and unreadable records count as missing.

    Records have an age, unless the partition is `ageless`. Writing raises as `CacheFolder.write` does.
    """

    def __init__(self, folder: CacheFolder, name: str, *, ageless: bool = False) -> None:
        self.folder, self.name, self.ageless = folder, name, ageless

    def lookup(self, request: Request) -> CachedAnswer | None:
        """Return the stored answer to exactly this request, or None.

        An answer about an artifact that changed since, that is gone, or that its namespace does not serve counts as
        missing.
        """
        found = self._read(self._answer_name(request))
        try:
            record = self.artifact_record(check_sha256(str(found["digest"])), str(found["id"]))
            if record is None or record.gone or found.get("etag", "") != record.etag:
                return None
            if record.artifact.digest not in request.related or not record.artifact.answers_requests:
                return None
            match = found["match"]
            return CachedAnswer(Answer(record.artifact, Match(tuple(match["relaxed"]), dict(match["assumed"]))), record)
        except (KeyError, TypeError, ValueError, MxrError):
            return None

    def has_miss(self, request: Request) -> bool:
        """Whether the registry's last word on this request was that it has nothing."""
        return self._read(self._answer_name(request)).get("miss") is True

    def store_answer(self, request: Request, answer: Answer, etag: str = "") -> None:
        """Store an answer and the record of its artifact."""
        artifact = answer.artifact
        self.store_artifact(artifact, etag)
        row = {"digest": artifact.digest, "id": artifact.id, "match": answer.match.to_json(), "etag": etag}
        self._write(self._answer_name(request), row)

    def store_miss(self, request: Request) -> None:
        """Store that the registry has nothing for a request."""
        self._write(self._answer_name(request), {"miss": True})

    def store_completion(self, document: Json, identity: str | None) -> None:
        """Store the id of the only artifact that a partial request means; None if it means several, or none."""
        name = self._completion_name(document)
        if identity is None:
            self.folder.remove(f"{self.name}/{name}")
        elif self._read(name).get("id") != identity:
            self._write(name, {"id": identity})

    def completion(self, document: Json) -> str | None:
        """Return the id of the artifact that the registry last said this very partial request means, or None."""
        found = self._read(self._completion_name(document)).get("id")
        return found if isinstance(found, str) else None

    def store_artifact(self, artifact: Artifact, etag: str = "", gone: str | None = None) -> None:
        """Store the record of an artifact, confirmed now."""
        row = {"artifact": codec.encode(artifact), "etag": etag, "confirmed_at": time.time(), "gone": gone}
        self._write(_artifact_name(artifact.digest, artifact.id), row)

    def confirm_artifact(self, artifact: Artifact, etag: str) -> None:
        """Store that the record of an artifact is still what the registry says: as it said it, without recall lists."""
        row = self._read(_artifact_name(artifact.digest, artifact.id))
        if "artifact" in row:
            row |= {"etag": etag, "confirmed_at": time.time(), "gone": None}
            self._write(_artifact_name(artifact.digest, artifact.id), row)
        else:
            self.store_artifact(artifact, etag)

    def artifact_record(self, digest: str, identity: str) -> CachedArtifact | None:
        """Return the record of an artifact by the digest of its key and its id, or None."""
        try:
            name = _artifact_name(digest, identity)
            row = self._read(name)
            artifact = codec.decode(Artifact, row["artifact"], "artifact", lenient=True)
            age = None if self.ageless else time.time() - float(row["confirmed_at"])
            if not artifact.sound or name != _artifact_name(artifact.digest, artifact.id):
                return None
            artifact = self.with_recall(artifact)
            return CachedArtifact(artifact, str(row["etag"]), age, row["gone"], imported=self.ageless)
        except (KeyError, TypeError, ValueError, MxrError):
            return None

    def records(self, digest: str | None = None, *, model: str | None = None) -> Iterator[CachedArtifact]:
        """Yield the records with this digest of the key, those of this model, or all."""
        for each in self._names("artifacts") if digest is None else (digest,):
            for name in self._names(f"artifacts/{each}"):
                # Most records are of other models: looking for the name in the bytes is faster than decoding them.
                data = self.folder.read(f"{self.name}/artifacts/{each}/{name}") if model is not None else None
                if model is not None and model.encode() not in (data or b""):
                    continue
                if record := self.artifact_record(each, name.removesuffix(".json")):
                    yield record

    def model(self, model: str) -> Model | None:
        """Return the record of a model by its hash, or None."""
        try:
            return codec.decode(Model, self._read(_model_name(model)), "model", lenient=True)
        except MxrError:
            return None

    def model_identities(self, prefix: str) -> list[str]:
        """Return the identities of the models that begin with `prefix`: "sha256:" and hex digits."""
        found = [MODEL_PREFIX + name.removesuffix(".json") for name in self._names("models")]
        return [identity for identity in found if identity.startswith(prefix) and MODEL.fullmatch(identity)]

    def store_model(self, model: Model) -> None:
        """Store the inputs of a model."""
        known = replace(model, complete=False, onnx=None, manifest=None)
        if self.model(model.model) != known:
            self._write(_model_name(model.model), codec.encode(known))

    def defaults(self) -> tuple[object, float] | None:
        """Return the document of the namespace's request defaults and the seconds since the registry told it."""
        row = self._read("defaults.json")
        try:
            return row["defaults"], time.time() - float(row["confirmed_at"])
        except (KeyError, TypeError, ValueError):
            return None

    def store_defaults(self, document: Json) -> None:
        """Store the request defaults of the namespace, told now."""
        self._write("defaults.json", {"defaults": document, "confirmed_at": time.time()})

    def tag(self, name: str) -> CachedTag | None:
        """Return what the registry last said that a tag names, or None."""
        from mxr.protocol.tags import Tag

        row = self._read(f"tags/{name}.json")
        try:
            tag = codec.decode(Tag, row["tag"], "tag", lenient=True)
            return CachedTag(tag, str(row["etag"]), time.time() - float(row["confirmed_at"]))
        except (KeyError, TypeError, ValueError, MxrError):
            return None

    def store_tag(self, name: str, tag: Tag | None, etag: str = "") -> None:
        """Store what a tag names, confirmed now; None: there is no such tag."""
        if tag is None:
            self.folder.remove(f"{self.name}/tags/{name}.json")
        else:
            self._write(f"tags/{name}.json", {"tag": codec.encode(tag), "etag": etag, "confirmed_at": time.time()})

    def with_recall(self, artifact: Artifact) -> Artifact:
        """Return the artifact with what a recall list here says of it, if that is more than it says itself."""
        if artifact.recall is not None and artifact.recall.refuses:
            return artifact
        found = self.recall_of(artifact.id)
        return artifact if found is None else replace(artifact, recall=found)

    def recall_of(self, identity: str) -> Recall | None:
        """Return what the recall lists here say of an artifact, which need not be here."""
        for data in self._recall_lists:
            # Most lists do not name it: looking for the id in the bytes is faster than decoding them.
            row = self._read_list(data)["items"].get(identity) if identity.encode() in data else None
            if row is not None:
                with suppress(MxrError):
                    return codec.decode(Recall, row, lenient=True)
        return None

    @cached_property
    def _recall_lists(self) -> list[bytes]:
        return [self.folder.read(f"{self.name}/recalls/{name}") or b"" for name in self._names("recalls")]

    def _read_list(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
            return found if isinstance(found["items"], dict) else {"items": {}}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"items": {}}

    def recall_list(self, name: str) -> dict[str, Any]:
        """Return a recall list as it was stored: `{"sequence","expires_at",...}`; `sequence` is 0 without one."""
        found = self._read(f"recalls/{name}.json")
        known = isinstance(found.get("sequence"), int) and isinstance(found.get("expires_at"), (int, float))
        return found if known else {"sequence": 0, "expires_at": 0.0}

    def store_recall_list(
        self, name: str, sequence: int, expires_at: float, items: Iterable[Recalled], rule: str = ""
    ) -> None:
        """Store a recall list. `rule`: the digest of the rule that has taken what it says of keys."""
        rows = {each.id: codec.encode(each.recall) for each in items}
        row = {"sequence": sequence, "expires_at": expires_at, "items": rows, "rule": rule}
        self._write(f"recalls/{name}.json", row)
        self.__dict__.pop("_recall_lists", None)

    def statements(self, identity: str) -> list[Envelope]:
        """Return what was signed of an artifact, as far as it is here. Nothing of it is verified."""
        from mxr.trust.envelope import Envelope

        rows = self._read(_statements_name(identity)).get("envelopes")
        found = []
        for row in rows[:MAX_ENVELOPES] if isinstance(rows, list) else ():
            with suppress(MxrError):
                found.append(codec.decode(Envelope, row))
        return found

    def store_statements(self, identity: str, envelopes: Sequence[Envelope]) -> None:
        """Store what was signed of an artifact."""
        self._write(_statements_name(identity), {"envelopes": codec.encode(list(envelopes)[:MAX_ENVELOPES])})

    def _names(self, name: str) -> list[str]:
        return self.folder.names(f"{self.name}/{name}")

    def _answer_name(self, request: Request) -> str:
        return _hashed_name("answers", request.to_json())

    def _completion_name(self, document: Json) -> str:
        return _hashed_name("completions", document)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self.folder.read(f"{self.name}/{name}") or b"")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, row: dict[str, Any]) -> None:
        self.folder.write(f"{self.name}/{name}", codec.canonical(row).encode())


def _hashed_name(folder: str, document: Json) -> str:
    name = sha256(codec.canonical(document).encode()).hexdigest()
    return f"{folder}/{name[:2]}/{name}.json"


def _artifact_name(digest: str, identity: str) -> str:
    return f"artifacts/{check_sha256(digest)}/{check_sha256(identity)}.json"


def _statements_name(identity: str) -> str:
    return f"statements/{check_sha256(identity)}.json"


def _model_name(model: str) -> str:
    return f"models/{model.rpartition(':')[2]}.json"
