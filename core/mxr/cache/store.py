"""The local cache: programs by sha256, and what each registry answered, in partitions of their own.

    <cache_dir>/v2/                            an incompatible layout gets a new version folder
        files/ab/<sha256>                      a complete program, read-only, verified before it gets this name
        files/ab/.mxr-partial-<sha256>         what an interrupted download left of it
        registries/<name>/registry.json        a registry URL with a namespace, and the UUID that answered there last
        registries/<name>/static.json          when this URL was found to be that of files, see `workflows.connection`
        registries/<name>/<uuid>/              the partition of that registry, see `partition`
        imported/                              the partition of imported bundles, whose records have no age
        local/models/<hash>.json               the inputs of models that were read on this host
        memo/                                  digests of files by device, inode, size and times
        used/<sha256>                          when the program was last used, see `room`
        locks/<sha256>                         lets one process of a host download a file; an optimization only

A cache that is not writable still serves its content. `folder` says whose content is used.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.attributes import Request
from mxr.artifact.manifest import File
from mxr.artifact.matching import ANY, choose_candidate
from mxr.artifact.partial import PartialRequest
from mxr.artifact.recall import Recall
from mxr.artifact.records import Artifact, Model
from mxr.errors import (
    DamagedError,
    DiskFullError,
    InvalidReplyError,
    Json,
    MxrError,
    NoSuchBlobError,
    OtherRegistryError,
)
from mxr.util import codec, disk
from mxr.util.hashing import StatMemo, sha256_memoised

from . import usage_log
from .folder import CacheFolder
from .partition import (
    CONFIRMABLE,
    OWN,
    REMOVED,
    Answer,
    CachedAnswer,
    CachedArtifact,
    CachedTag,
    CachePolicy,
    CacheState,
    Partition,
    list_name,
)

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.protocol.tags import Tag
    from mxr.settings import Settings
    from mxr.trust.envelope import Envelope

    from .proofs import Proofs
    from .proven import Proven
    from .staging import Staging

__all__ = ["CONFIRMABLE", "Answer", "Cache", "CachePolicy", "CacheState", "CachedAnswer", "CachedArtifact"]

VERSION = "v2"

PART_SECONDS, MAX_PARTS = 7 * 86_400.0, 8
"""How long partial files of interrupted downloads are kept, and how many. Each takes the disk of a whole program."""

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Cache:
    """The cache in one folder. Damaged and unreadable entries count as missing.

    Every method raises `NotAllowedError` if others can write to the folder.
    """

    def __init__(self, folder: Path, policy: CachePolicy | None = None) -> None:
        self.policy = policy or CachePolicy()
        self.folder = CacheFolder(folder, VERSION, self.policy.owners)
        self.root = self.folder.path
        self.imported = Partition(self.folder, "imported", ageless=True)
        self._local = Partition(self.folder, "local", ageless=True)
        self._home = f"registries/{self.policy.home}"
        self.damaged: set[str] = set()
        """The sha256 of the programs that were found damaged and removed."""
        self.recalled: dict[str, Recall] = {}
        """What was passed over because the registry recalled it, by id."""
        self.defaults_away = False
        """The registry did not tell its request defaults in time: it is not asked again for this cache."""
        self._registry: str | None = None
        self._partition: Partition | None = None
        self._output: Path | None = None
        self._staging: Staging | None = None

    @classmethod
    def of(cls, settings: Settings) -> Cache:
        """Return the cache of a client with these settings."""
        return cls(settings.cache_dir, CachePolicy.of(settings))

    # --- what must be signed ---

    @cached_property
    def _proven(self) -> Proven | None:
        """What was proven; None where this user requires nothing of this registry. Raises `UsageError`."""
        config = self.policy.config
        if config is None or not os.path.lexists(config / "trust.json"):
            return None
        from .proven import Proven

        found = Proven(self)
        return None if found.rule is None else found

    @cached_property
    def _proofs(self) -> Proofs | None:
        """What proves programs; None where this user requires nothing of this registry."""
        if self._proven is None:
            return None
        from .proofs import Proofs

        return Proofs(self, self._proven)

    @property
    def requires_proof(self) -> bool:
        """Whether this user requires signatures of the registry."""
        return self._proven is not None

    def require_proof(self, artifact: Artifact) -> None:
        """Raise `UntrustedError` if this user requires signatures of the registry, and nothing here proves this one."""
        if self._proven is None:
            return
        self._proven.refuse_expired()
        if not self._proven.remembers(artifact) and self._proofs is not None:
            self._proofs.prove(artifact)

    def collect_proof(self, artifact: Artifact, connect: Callable[[], Client] | None) -> None:
        """Where signatures are required, bring what the registry signed of an artifact. Refuses nothing."""
        if self._proven is not None and not self._proven.remembers(artifact) and self._proofs is not None:
            self._proofs.collect(artifact, connect)

    def statements(self, identity: str) -> tuple[Envelope, ...]:
        """Return what was signed of an artifact, as far as it is here. Nothing of it is verified."""
        sources = (self.partition, self.imported)
        return tuple(each for source in sources if source is not None for each in source.statements(identity))

    # --- the registry ---

    def note_registry(self, uuid: str) -> None:
        """Note which registry answered. Its partition serves from now on.

        Raises `OtherRegistryError` for another one than before, whose programs are in the cache, until somebody accepts
        it: a registry whose data is not mounted would take them away from every host. Raises `InvalidReplyError`.
        """
        if uuid == self._registry:
            return
        if not UUID.fullmatch(uuid):
            raise InvalidReplyError(
                f"The registry at {self.policy.url} identifies itself as {uuid[:80]!r}, which is not a UUID."
            )
        noted, wanted = self._noted_registry(), self.policy.registry_id
        # With `registry_id`, the client itself takes no other one.
        known = wanted or (noted if noted and (self.root / self._home / noted / "artifacts").is_dir() else "")
        if known not in ("", uuid):
            raise OtherRegistryError(
                f"What answers at {self.policy.url} is registry {uuid}, and not {known} as before."
            )
        if uuid != noted:
            with suppress(MxrError):
                self.accept_registry(uuid)
        self._registry = uuid

    def note_reply(self, client: Client) -> None:
        """Note which registry answered, and take its recall list where that has changed.

        Raises as `note_registry` does, and `UntrustedError` for a list that is not what this user requires.
        """
        self.note_registry(client.identity)
        if client.recalls is not None and self.partition is not None:
            if (proofs := self._proofs) is not None:
                proofs.take_recalls(client)
            elif client.recalls > self.partition.recall_list(OWN)["sequence"]:
                with suppress(MxrError):
                    found = client.recall_list()
                    self.partition.store_recall_list(OWN, found.sequence, 0.0, found.items)

    def import_recalls(self, envelope: Envelope) -> None:
        """Take the recall list of a bundle, unless a later one is here.

        Raises `UntrustedError` for one that is not signed as required, and `MxrError` for one that is none.
        """
        from mxr.trust.recall_list import SignedRecalls

        if (proofs := self._proofs) is not None:
            proofs.import_recalls(envelope)
            return
        found = SignedRecalls.unverified(envelope)
        name = list_name(found.registry, found.namespace)
        if found.sequence > self.imported.recall_list(name)["sequence"]:
            self.imported.store_recall_list(name, found.sequence, found.expires_at, found.items)

    def accept_registry(self, uuid: str) -> None:
        """Take this registry from now on, whichever answered before. Raises as `CacheFolder.write` does."""
        row = {"url": self.policy.url, "namespace": self.policy.namespace, "uuid": uuid}
        self.folder.write(f"{self._home}/registry.json", codec.canonical(row).encode())

    @property
    def partition(self) -> Partition | None:
        """The partition of the registry that answered last at the URL; None before any answer."""
        uuid = self._registry or self._noted_registry()
        if not uuid:
            return None
        name = f"{self._home}/{uuid}"
        if self._partition is None or self._partition.name != name:
            self._partition = Partition(self.folder, name)
        return self._partition

    def _noted_registry(self) -> str | None:
        uuid = self._document(f"{self._home}/registry.json").get("uuid")
        return uuid if isinstance(uuid, str) and UUID.fullmatch(uuid) else None

    # --- programs ---

    @cached_property
    def memo(self) -> StatMemo:
        """The digests of files, in a folder that only this user writes."""
        own = [self.folder]
        if self.policy.private is not None:
            own.append(CacheFolder(self.policy.private, "memo"))
        for folder in own:
            try:
                if folder.writable:
                    folder.prepare_path("memo/x")
                    return StatMemo(folder.path / "memo")
            except MxrError:
                continue
        return StatMemo(None)

    def file_path(self, sha: str) -> Path:
        """Return the path of the program with this sha256, whether it exists or not."""
        return self.root / _file_name(sha)

    def access_path(self, sha: str) -> Path:
        """Return the path by which this process reads a program: where it was staged, else in the checked folder."""
        staged = None if self._staging is None else self._staging.find(sha)
        return staged or self.folder.access_path(_file_name(sha))

    def prepare_file(self, sha: str) -> Path:
        """Return the path for a new program, in a folder that exists. Raises as `CacheFolder.prepare_path` does."""
        return self.folder.prepare_path(_file_name(sha))

    def stage_file(self, sha: str, problem: MxrError) -> Path:
        """Return a path beside the output for a program that the cache cannot take. Raises `problem` without one."""
        if self._output is None:
            raise problem
        if self._staging is None:
            from .staging import Staging

            self._staging = Staging(self._output)
        return self._staging.prepare(sha, problem)

    @property
    def optional(self) -> bool:
        """Whether a program may be fetched that the cache can neither take nor record."""
        return self._output is not None

    @contextmanager
    def staged_beside(self, output: str | os.PathLike[str] | None) -> Iterator[None]:
        """For the block, do without a cache that cannot be used: what it lacks is written beside `output`, if any."""
        if output is None:
            yield
            return
        self._output, self.folder.optional = Path(output), True
        try:
            yield
        finally:
            if self._staging is not None:
                self._staging.remove()
            self._output, self._staging, self.folder.optional = None, None, False

    def staging_warnings(self) -> tuple[str, ...]:
        """Return the warning that a program was not cached, once."""
        return () if self._staging is None else self._staging.warnings()

    def place(
        self, sha: str, final: Path, before: disk.FileState | None = None, *, link: bool
    ) -> os.stat_result | None:
        """Create `final` from a program: a reflink or a copy, or with `link` a hard link.

        Returns the status of a copy when its last byte was written. Raises as `disk.atomic_file` does.
        """
        source = self.access_path(sha)
        if link or (self._staging is not None and self._staging.can_move(sha)):
            with suppress(MxrError) if not link else nullcontext():
                disk.link_whole(source, final, before)
                return None
        return disk.copy_whole(source, final, before)

    def has_file(self, sha: str) -> bool:
        """Return whether there is a file for this sha256 that nobody else can write. Its bytes are not verified."""
        staged = self._staging is not None and self._staging.find(sha) is not None
        return staged or self.folder.has_trusted_file(_file_name(sha))

    def intact_or_removed(self, sha: str) -> bool:
        """Return whether the program exists and matches its sha256. Removes it if it does not match."""
        if not self.has_file(sha):
            return False
        try:
            if sha256_memoised(self.access_path(sha), self.memo) == sha:
                return True
        except (MxrError, OSError):
            return False
        self.remove_file(sha)
        self.damaged.add(sha)
        return False

    @contextmanager
    def download_lock(self, sha: str) -> Iterator[None]:
        """Lock the download of a file, so that one process of a host does it. Continues if locks do not work."""
        import fcntl

        name = f"locks/{sha}"
        lock = self.folder.open_to_write(name, os.O_RDWR)
        try:
            descriptor = lock.__enter__()
        except (OSError, MxrError):
            yield
            return
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            self.folder.remove(name)
            lock.__exit__(None, None, None)

    @contextmanager
    def partial_file(self, sha: str, final: Path) -> Iterator[int]:
        """Yield the descriptor of a new program, which gets its final name after the block, and its name in errors.

        It may hold what an interrupted download left, and is kept where this one is interrupted; not on a full disk,
        for wrong or lost bytes, or if it is empty. Where another process has it, a file of its own is used.
        Raises as `disk.atomic_file` does.
        """
        with self._own_part(sha) as descriptor:
            if descriptor is None:
                with disk.atomic_file(final, mode=0o444) as another:
                    yield another
                return
            try:
                yield descriptor
                disk.finish_file(descriptor, final.with_name(disk.PARTIAL + sha), final, 0o444)
            except BaseException as problem:
                wrong = isinstance(problem, (DiskFullError, DamagedError, NoSuchBlobError))
                useless = wrong or not os.fstat(descriptor).st_size
                if useless:
                    self.folder.remove(_part_name(sha))
                raise

    @contextmanager
    def _own_part(self, sha: str) -> Iterator[int | None]:
        """Open and lock the partial file of a program for the block; None where that is not possible."""
        import fcntl

        with ExitStack() as stack:
            descriptor = None
            with suppress(OSError, MxrError):
                opened = stack.enter_context(self.folder.open_to_write(_part_name(sha), os.O_RDWR))
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # It may have got its final name before it was locked.
                if os.path.samestat(os.fstat(opened), self.folder.access_path(_part_name(sha)).lstat()):
                    descriptor = opened
            yield descriptor

    def sweep_parts(self) -> None:
        """Remove what interrupted downloads left a week ago, and all but the newest of the rest."""
        import fcntl

        kept: list[float] = []
        found = []
        for path in (self.root / "files").glob(f"*/{disk.PARTIAL}*"):
            with suppress(OSError):
                found.append((path.lstat().st_mtime, path))
        for changed, path in sorted(found, reverse=True):
            if len(kept) < MAX_PARTS and changed > time.time() - PART_SECONDS:
                kept.append(changed)
                continue
            name = str(path.relative_to(self.root))
            with suppress(OSError, MxrError), self.folder.open_to_write(name, os.O_RDWR) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.folder.remove(name)

    # --- answers ---

    def lookup(self, request: Request) -> CachedAnswer | None:
        """Return the answer to exactly this request, with its state: the registry's, else that of a bundle, or None.

        The answer of a bundle counts as missing if the registry said since that it has nothing, that the artifact is
        gone, or that it is another. Files that do not match their sha256 are removed.
        """
        found = self._stored_answer(request)
        if found is None:
            return None
        state = self.state_of(found.record)
        if found.answer.match.relaxed:
            serves = state in (CacheState.FRESH, CacheState.UNCONFIRMED)
            state = CacheState.RELAXED if serves else CacheState.UNSUITABLE
        intact = self.all_intact_or_removed(found.answer)
        return replace(found, state=state if intact else CacheState.UNSUITABLE)

    def _stored_answer(self, request: Request) -> CachedAnswer | None:
        partition = self.partition
        if partition is not None and (found := partition.lookup(request)) is not None:
            return found
        brought = self.imported.lookup(request)
        if brought is None or (partition is not None and partition.has_miss(request)):
            return None
        record = self._updated_by_registry(brought.record)
        if record.gone or not is_same_offer(record.artifact, brought.record.artifact):
            return None
        return replace(brought, record=record)

    def _updated_by_registry(self, brought: CachedArtifact) -> CachedArtifact:
        """Return what the registry said about an artifact that a bundle brought, else the record of the bundle."""
        artifact, partition = brought.artifact, self.partition
        said = None if partition is None else partition.artifact_record(artifact.digest, artifact.id)
        if said is not None:
            return replace(said, imported=True)
        return brought if partition is None else replace(brought, artifact=partition.with_recall(artifact))

    def best_match(self, request: Request) -> CachedAnswer | None:
        """Return the best cached artifact for a request by the rules of the registry, or None.

        Artifacts that are gone do not count. Where the registry's last word on the request was that it has nothing,
        only imported ones do.
        """
        held: dict[str, CachedArtifact] = {}
        candidates = []
        partition = self.partition
        sources = [self.imported]
        if partition is not None:
            sources += [] if partition.has_miss(request) else [partition]
        for digest, related in request.related.items():
            for record in (each for source in sources for each in source.records(digest)):
                if record.imported:
                    record = self._updated_by_registry(record)
                artifact = record.artifact
                if artifact.recall is not None:
                    self.recalled[artifact.id] = artifact.recall
                if record.gone is None and artifact.answers_requests and artifact.id not in held:
                    held[artifact.id] = record
                    candidates.append(artifact.candidate(related))
        found = choose_candidate(request.constraints, candidates, serve=ANY)
        if not found:
            return None
        record = held[found[0].id]
        return CachedAnswer(Answer(record.artifact, found[1]), record)

    def state_of(self, record: CachedArtifact | None) -> CacheState:
        """Return how the artifact of a record may serve. Its files are not looked at."""
        if record is None:
            return CacheState.ABSENT
        if record.refused:
            return CacheState.GONE
        if record.age is not None and 0 <= record.age <= self.policy.max_age:
            return CacheState.FRESH
        if record.imported or record.age is None or 0 <= record.age <= self.policy.max_stale:
            return CacheState.UNCONFIRMED
        return CacheState.EXPIRED

    def all_intact_or_removed(self, answer: Answer) -> bool:
        """Return whether every file of an answer is here and matches its sha256. Removes those that do not match."""
        manifest = answer.artifact.manifest
        return manifest is not None and all(self.intact_or_removed(file.sha256) for file in manifest.files)

    def store_answer(self, request: Request, answer: Answer, etag: str = "") -> None:
        """Store an answer of the registry. Raises as `CacheFolder.prepare_path` does."""
        if self.partition is not None:
            self.partition.store_answer(request, answer, etag)

    def store_miss(self, request: Request) -> None:
        """Store that the registry has nothing for a request, where the cache would serve something else."""
        with suppress(MxrError):
            partition = self.partition
            if partition is None or partition.has_miss(request):
                return
            if partition.lookup(request) or self.best_match(request):
                partition.store_miss(request)

    def store_completion(self, partial: PartialRequest, identity: str | None) -> None:
        """Store which artifact the registry says that a partial request means; None if it means several, or none."""
        with suppress(MxrError):
            if self.partition is not None:
                self.partition.store_completion(partial.to_json(), identity)

    def completion(self, partial: PartialRequest) -> str | None:
        """Return the id of the only artifact that this very partial request meant when the registry was last asked."""
        return None if self.partition is None else self.partition.completion(partial.to_json())

    def store_artifact(self, artifact: Artifact, etag: str = "") -> None:
        """Store that the registry has an artifact. Raises as `CacheFolder.prepare_path` does."""
        if self.partition is not None:
            self.partition.store_artifact(artifact, etag)

    def confirm_artifact(self, artifact: Artifact, etag: str) -> None:
        """Store that the registry still says the same of an artifact. Raises as `CacheFolder.prepare_path` does."""
        if self.partition is not None:
            self.partition.confirm_artifact(artifact, etag)

    def store_removal(self, record: CachedArtifact) -> None:
        """Store that the registry no longer has an artifact. It is no longer served then."""
        if self.partition is not None:
            self.partition.store_artifact(record.artifact, record.etag, gone=REMOVED)

    def artifact_record(self, digest: str, identity: str) -> CachedArtifact | None:
        """Return the record of an artifact by the digest of its key and its id: the registry's, else of a bundle."""
        brought = self.imported.artifact_record(digest, identity)
        if brought is not None:
            return self._updated_by_registry(brought)
        return None if self.partition is None else self.partition.artifact_record(digest, identity)

    def recall_of(self, digest: str, identity: str) -> Recall | None:
        """Return what was said of an artifact, as far as this host has heard; it need not be in the cache."""
        record = self.artifact_record(digest, identity)
        if record is not None:
            return record.artifact.recall
        lists = (self.partition, self.imported)
        found = (each.recall_of(identity) for each in lists if each is not None)
        return next((each for each in found if each is not None), None)

    def find_record(self, identity: str) -> CachedArtifact | None:
        """Return the record of an artifact by its id or a unique prefix of it, or None. It can be a removed one."""
        found = {each.artifact.id: each for each in self._records() if each.artifact.id.startswith(identity)}
        return next(iter(found.values())) if len(found) == 1 else None

    def artifacts(self, model: str | None = None) -> Iterator[Artifact]:
        """Yield the records of this registry and of bundles, all or those of one model."""
        return (record.artifact for record in self._records(model))

    def _records(self, model: str | None = None) -> Iterator[CachedArtifact]:
        """Yield the records of bundles, then those of the registry, which know more."""
        for source in (self.imported, self.partition):
            if source is not None:
                yield from source.records(model=model)

    def servable_records(self, model: str) -> Iterator[CachedArtifact]:
        """Yield the records of a model's programs that may answer requests: not gone, and served by their namespace.

        What a bundle brought counts by what the registry said since, if it said anything.
        """
        seen = set()
        for source in (self.imported, self.partition):
            for record in source.records(model=model) if source is not None else ():
                if record.imported:
                    record = self._updated_by_registry(record)
                artifact = record.artifact
                if record.gone is None and artifact.answers_requests and artifact.id not in seen:
                    seen.add(artifact.id)
                    if artifact.key.model == model:
                        yield record

    def log_use(self, identity: str) -> None:
        """Log a use that no resolve counted."""
        if self.partition is not None:
            usage_log.log_use(self.partition, identity)

    def report_uses(self, client: Client) -> None:
        """Report the logged uses to the registry, if there are any."""
        if self.partition is not None:
            usage_log.report_uses(self.partition, client)

    # --- models ---

    def model(self, model: str) -> Model | None:
        """Return the record of a model by its hash, or None."""
        for source in (self._local, self.partition, self.imported):
            if source is not None and (found := source.model(model)):
                return found
        return None

    def model_identities(self, prefix: str) -> list[str]:
        """Return the identities of the models that begin with `prefix`: "sha256:" and hex digits."""
        sources = (self._local, self.partition, self.imported)
        return sorted(
            {identity for source in sources if source is not None for identity in source.model_identities(prefix)}
        )

    def store_model(self, model: Model, *, from_registry: bool = False) -> None:
        """Store the inputs of a model for requests by hash. `from_registry`: nobody read them from the model itself.

        Does nothing if the cache is not writable.
        """
        partition = self.partition if from_registry else self._local
        with suppress(MxrError):
            if partition is not None:
                partition.store_model(model)

    def defaults(self) -> tuple[object, float] | None:
        """Return the document of the namespace's request defaults and its age in seconds; None before any answer."""
        return None if self.partition is None else self.partition.defaults()

    def store_defaults(self, document: Json) -> None:
        """Store the request defaults of the namespace. Does nothing if the cache is not writable."""
        with suppress(MxrError):
            if self.partition is not None:
                self.partition.store_defaults(document)

    def tag(self, name: str) -> CachedTag | None:
        """Return what the registry last said that a tag names, or None."""
        return None if self.partition is None else self.partition.tag(name)

    def store_tag(self, name: str, tag: Tag | None, etag: str = "") -> None:
        """Store what a tag names; None: there is none. Does nothing if the cache is not writable."""
        with suppress(MxrError):
            if self.partition is not None:
                self.partition.store_tag(name, tag, etag)

    # --- contents ---

    def find_blobs(self, model: str, file: File) -> dict[str, tuple[Path, int]]:
        """Return where cached programs of the same model contain blobs of `file`: path and offset by sha256.

        The bytes are not verified: a reader must verify them like downloaded bytes.
        """
        found: dict[str, tuple[Path, int]] = {}
        wanted = {blob.sha256 for blob in file.blobs}
        for artifact in self.artifacts(model) if len(wanted) > 1 else ():
            for each in artifact.manifest.files if artifact.manifest else ():
                if self.has_file(each.sha256):
                    found |= {sha: place for sha, place in self.blob_positions(each).items() if sha in wanted}
        return found

    def blob_positions(self, file: File) -> dict[str, tuple[Path, int]]:
        """Return where the blobs of a cached file are: path and offset by sha256. Does not check that it exists."""
        return {blob.sha256: (self.access_path(file.sha256), offset) for offset, blob in file.spans()}

    def programs(self) -> Iterator[str]:
        """Yield the sha256 in the name of each cached program."""
        for above in self.folder.names("files"):
            for name in self.folder.names(f"files/{above}"):
                if not name.startswith(disk.PARTIAL) and self.folder.has_trusted_file(f"files/{above}/{name}"):
                    yield name

    def remove_file(self, sha: str) -> None:
        """Remove a program. Does nothing where that is not possible."""
        self.folder.remove(_file_name(sha))

    def _document(self, name: str) -> dict[str, object]:
        try:
            found = json.loads(self.folder.read(name) or b"")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def is_same_offer(one: Artifact, other: Artifact) -> bool:
    """Return whether two records of an artifact answer the same requests: the same facts, and served."""
    same = (one.id, one.digest, one.attributes) == (other.id, other.digest, other.attributes)
    return same and one.sound and one.answers_requests


def _part_name(sha: str) -> str:
    return f"files/{sha[:2]}/{disk.PARTIAL}{sha}"


def _file_name(sha: str) -> str:
    return f"files/{sha[:2]}/{sha}"
