"""The local cache: programs by sha256, answers of the registry by request, and digests of files.

    <cache_dir>/v1/                        an incompatible layout gets a new version folder
        files/ab/<sha256>                  a complete program, read-only, verified before it gets this name
        artifacts/<digest>/<id>.json       its record in the registry: key, qualities, manifest
        answers/ab/<request>.json          the artifact that a request got, and how well it matched
        models/<64 digits>.json                the inputs of a model, for requests by hash
        memo/                              digests of files by device, inode, size and times
        locks/<sha256>                     lets one process of a host download a file; an optimization only

A cache that is not writable still serves its content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from mxr.artifact.key import MODEL, MODEL_PREFIX
from mxr.artifact.manifest import File
from mxr.artifact.matching import Candidate, Match, choose
from mxr.artifact.qualities import Request
from mxr.artifact.records import Artifact, Model
from mxr.artifact.serving import ANY
from mxr.errors import MxrError
from mxr.util import codec, disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import StatMemo, is_intact, sha256_file, sha256_memoised

VERSION = "v1"


@dataclass(frozen=True, slots=True)
class Answer:
    """The artifact that a request got, and how well it matched."""

    artifact: Artifact
    match: Match


class Cache:
    """The cache in one folder. Reading never fails: damaged and unreadable entries count as missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / VERSION
        self.memo = StatMemo(self.root / "memo")

    def file(self, sha: str) -> Path:
        """Returns the path of the program with this sha256, whether it exists or not."""
        return self.root / "files" / sha[:2] / sha

    def holds(self, sha: str) -> bool:
        """Returns whether the program exists and matches its sha256. Removes it if it does not match."""
        path = self.file(sha)
        try:
            if sha256_memoised(path, self.memo) == sha:
                return True
        except (MxrError, OSError):
            return False
        with suppress(OSError):
            path.unlink()
        return False

    def answer(self, request: Request) -> Answer | None:
        """Returns the last answer of the registry to exactly this request, or None."""
        found = self._read(self._answer_path(request))
        try:
            artifact = self._artifact(self._artifact_path(request_digest(found), str(found["id"])))
            match = found["match"]
            if artifact is None or artifact.digest not in _digests(request) or not artifact.answers_requests:
                return None
            return Answer(artifact, Match(tuple(match["relaxed"]), dict(match["assumed"])))
        except (KeyError, TypeError, ValueError, MxrError):
            return None

    def choose(self, request: Request) -> Answer | None:
        """Returns the best cached artifact for a request by the rules of the registry, or None."""
        held: dict[str, Artifact] = {}
        candidates = []
        for key, generic in ((request.key, None), (request.key.generic(), True)):
            if key is None:
                continue
            for artifact in filter(lambda each: each.answers_requests, self._artifacts(key.digest)):
                held[artifact.id] = artifact
                candidates.append(
                    Candidate(
                        artifact.id,
                        artifact.qualities,
                        artifact.promoted_at or 0,
                        round(artifact.published_at * 1000),
                        key.arch if generic else None,
                        artifact.origin,
                        artifact.found,
                    )
                )
        found = choose(request.demands, candidates, serve=ANY)
        return Answer(held[found[0].id], found[1]) if found else None

    def remember(self, request: Request, answer: Answer) -> None:
        """Stores an answer of the registry. Raises as `disk.faults` does."""
        artifact = answer.artifact
        self.keep(artifact)
        row = {"digest": artifact.digest, "id": artifact.id, "match": answer.match.to_json()}
        self._write(self._answer_path(request), row)

    def keep(self, artifact: Artifact) -> None:
        """Stores the record of an artifact, without an answer. Raises as `disk.faults` does."""
        self._write(self._artifact_path(artifact.digest, artifact.id), codec.encode(artifact))

    def known(self, digest: str, identity: str) -> Artifact | None:
        """Returns the record of an artifact by the digest of its key and its id, or None."""
        return self._artifact(self._artifact_path(digest, identity))

    def named(self, identity: str) -> Artifact | None:
        """Returns the record of an artifact by its id or a unique prefix of it, or None."""
        found = {path.stem: path for path in (self.root / "artifacts").glob(f"*/{identity}*.json")}
        return self._artifact(next(iter(found.values()))) if len(found) == 1 else None

    def pieces(self, model: str, file: File) -> dict[str, tuple[Path, int]]:
        """Returns where cached programs of the same model contain blobs of `file`: path and offset by sha256.

        The bytes are not verified: a reader must verify them like downloaded bytes.
        """
        found: dict[str, tuple[Path, int]] = {}
        wanted = {blob.sha256 for blob in file.blobs}
        for path in (self.root / "artifacts").glob("*/*.json") if len(wanted) > 1 else ():
            with suppress(OSError):
                artifact = self._artifact(path) if model.encode() in path.read_bytes() else None
                for each in artifact.manifest.files if artifact and artifact.manifest else ():
                    if self.file(each.sha256).exists():
                        found |= {sha: place for sha, place in self.places(each).items() if sha in wanted}
        return found

    def places(self, file: File) -> dict[str, tuple[Path, int]]:
        """Returns where the blobs of a cached file are: path and offset by sha256. Does not check that it exists."""
        return {blob.sha256: (self.file(file.sha256), offset) for offset, blob in file.spans()}

    def model(self, identity: str) -> Model | None:
        """Returns the record of a model by its identity, or None."""
        try:
            return codec.decode(Model, self._read(self._model_path(identity)), "model", lenient=True)
        except MxrError:
            return None

    def models(self, prefix: str) -> list[str]:
        """Returns the identities of the models that begin with `prefix`: "sha256:" and hex digits."""
        pattern = f"{prefix.removeprefix(MODEL_PREFIX)}*.json"
        found = [MODEL_PREFIX + path.stem for path in (self.root / "models").glob(pattern)]
        return [identity for identity in found if MODEL.fullmatch(identity)]

    def remember_model(self, model: Model) -> None:
        """Stores the inputs of a model for requests by identity. Does nothing if the cache is not writable.

        What is only claimed never replaces what was read from the model.
        """
        known = replace(model, complete=False, onnx=None, manifest=None)
        found = self.model(model.model)
        if found != known and not (known.claimed and found is not None and not found.claimed):
            with suppress(MxrError):
                self._write(self._model_path(model.model), codec.encode(known))

    @contextmanager
    def turn(self, sha: str) -> Iterator[None]:
        """Locks the download of a file, so that one process of a host does it. Continues if locks do not work."""
        import fcntl

        path = self.root / "locks" / sha
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("w")
        except OSError:
            yield
            return
        with handle:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()

    def entries(self) -> Iterator[tuple[Path, Artifact | None]]:
        """Yields the path of each cached program and its record, None without one."""
        known = {
            file.sha256: each
            for each in self._artifacts("*")
            for file in (each.manifest.files if each.manifest else ())
        }
        for path in sorted((self.root / "files").glob("*/*")):
            if not path.name.startswith(disk.PARTIAL):
                yield path, known.get(path.name)

    def verify(self, *, quick: bool = False) -> Iterator[tuple[Path, bool]]:
        """Reads every program again, and yields its path and whether it is intact. Removes damaged programs.

        `quick`: compares the XXH3-128 recorded when the sha256 was checked, which finds accidental damage.
        """
        for path, _ in self.entries():
            with suppress(OSError):
                good = is_intact(path, path.name, self.memo) if quick else sha256_file(path) == path.name
                if not good:
                    path.unlink(missing_ok=True)
                yield path, good

    def _artifacts(self, digest: str) -> Iterator[Artifact]:
        for path in sorted((self.root / "artifacts").glob(f"{digest}/*.json")):
            if artifact := self._artifact(path):
                yield artifact

    def _artifact(self, path: Path) -> Artifact | None:
        try:
            artifact = codec.decode(Artifact, self._read(path), "artifact", lenient=True)
        except MxrError:
            return None
        return artifact if artifact.sound and path == self._artifact_path(artifact.digest, artifact.id) else None

    def _artifact_path(self, digest: str, identity: str) -> Path:
        return self.root / "artifacts" / digest / f"{identity}.json"

    def _answer_path(self, request: Request) -> Path:
        name = sha256(codec.canonical(request.to_json()).encode()).hexdigest()
        return self.root / "answers" / name[:2] / f"{name}.json"

    def _model_path(self, identity: str) -> Path:
        return self.root / "models" / f"{identity.removeprefix(MODEL_PREFIX)}.json"

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, path: Path, row: dict[str, Any]) -> None:
        disk.write_whole(path, codec.canonical(row).encode())


def _digests(request: Request) -> set[str]:
    """Returns the digests of the keys whose artifacts can serve a request: its own, and that of its generic family."""
    return {key.digest for key in (request.key, request.key.generic()) if key is not None}


def request_digest(answer: dict[str, Any]) -> str:
    """Returns the digest of the key in a stored answer, which is the name of the folder of its artifact."""
    from mxr.artifact.manifest import check_sha256

    return check_sha256(str(answer["digest"]))
