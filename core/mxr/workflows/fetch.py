"""The way of a fetch: request -> cache -> registry -> bytes, checked -> cache.

What is handed out was always read as the sha256 that the registry gave for an artifact of this very key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.key import show
from mxr.artifact.manifest import File, Manifest
from mxr.artifact.matching import Candidate, Match, Verdict, judge
from mxr.artifact.qualities import Request
from mxr.artifact.records import Artifact
from mxr.cache import usage_log
from mxr.cache.store import Answer, Cache
from mxr.errors import Damaged, Mismatch, MxrError, Unreachable
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.client.registry import Client

Connect = Callable[[], "Client"]
"""Makes the client when it is needed: with the registry's own answer only, not with the cache's."""

Progress = Callable[[int], None]
Watch = Callable[[int], Progress]
"""Told the bytes to come, it gives the function that is told of each part as it comes."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A program that is here: `path` of it (of its folder, where there are several files), and what it is.

    `source` is `cache`, `registry` or `compiled`.
    """

    path: Path
    source: str
    answer: Answer

    def to_json(self) -> dict[str, Any]:
        """The document of `mxr fetch --json`."""
        artifact = self.answer.artifact
        return {
            "path": str(self.path),
            "source": self.source,
            "id": artifact.id,
            "sha256": artifact.sha256,
            "digest": artifact.digest,
            "key": artifact.key.to_json(),
            "qualities": artifact.qualities.to_json(),
            "match": self.answer.match.to_json(),
        }


def unwatched(_: int) -> Progress:
    """A watch that shows nothing."""
    return lambda _: None


@dataclass(frozen=True, slots=True)
class FoundArtifact:
    """An answer to a request, and the registry that gave it; None where the cache did, and has its files."""

    answer: Answer
    client: Client | None = None


def fetch(
    request: Request,
    cache: Cache,
    connect: Connect | None,
    *,
    refresh: bool = False,
    watch: Watch = unwatched,
) -> Fetched:
    """The right program for a request, in the cache.

    A cached answer serves alone when it was exact for this very request, or when there is no `connect` (offline).
    `refresh` asks the registry in any case. Raises `NoSuchArtifact` with the nearest, `Unreachable` when the cache
    could not serve either, `Damaged` when what comes is not what was promised.
    """
    return bring(request, look(request, cache, connect, refresh=refresh), cache, watch=watch)


def look(request: Request, cache: Cache, connect: Connect | None, *, refresh: bool = False) -> FoundArtifact:
    """Which program a request gets; nothing moves yet. For the rest see `fetch`."""
    before = None if refresh else cache.answer(request)
    if before is not None and before.match.exact and held(before, cache):
        return FoundArtifact(before)
    if connect is None:
        return FoundArtifact(_offline(request, before, cache))
    client = connect()
    try:
        return FoundArtifact(resolve(request, client), client)
    except Unreachable as problem:
        raise _unserved(request, before, cache, problem) from problem


def resolve(request: Request, client: Client) -> Answer:
    """What the registry answers now, checked. Raises `NoSuchArtifact`, `Unreachable`, `Damaged`."""
    hit = client.resolve(request)
    match = Match(tuple(hit.match.get("relaxed", ())), dict(hit.match.get("assumed", {})))
    answer = Answer(hit.artifact, match)
    check_answer(request, answer)
    return answer


def bring(request: Request, found: FoundArtifact, cache: Cache, *, watch: Watch = unwatched) -> Fetched:
    """The program that was found, in the cache."""
    answer = found.answer
    if found.client is None:
        use(answer, cache, None)
        return Fetched(path_of(answer, cache), "cache", answer)
    moved = complete(answer, cache, found.client, watch)
    # A cache that cannot be written serves what it holds; only what had to be written there is in need of it.
    with nullcontext() if moved else suppress(MxrError):
        cache.remember(request, answer)
    usage_log.tell(cache.root, found.client)
    return Fetched(path_of(answer, cache), "registry" if moved else "cache", answer)


def fetch_compiled(
    identity: str, request: Request, cache: Cache, client: Client, *, watch: Watch = unwatched
) -> Fetched:
    """The program that was compiled for a request, by the id of the artifact: nothing is resolved once more.

    Raises `Mismatch` when that artifact does not serve the request, `Damaged` when it is not what its id says.
    """
    answer = judged(request, client.artifact(identity), "What was compiled")
    moved = complete(answer, cache, client, watch)
    with nullcontext() if moved else suppress(MxrError):
        cache.remember(request, answer)
    use(answer, cache, client)
    return Fetched(path_of(answer, cache), "compiled", answer)


def use(answer: Answer, cache: Cache, client: Client | None) -> None:
    """Count a use that no resolve counted: told now where the registry was asked for something, else later."""
    usage_log.note(cache.root, answer.artifact.id)
    if client is not None:
        usage_log.tell(cache.root, client)


def judged(request: Request, artifact: Artifact, what: str) -> Answer:
    """An artifact that is known by its id as the answer to a request.

    Raises `Mismatch` where it does not serve the request, `Damaged` when it is not what its id says.
    """
    verdict = _judged(request, artifact)
    if verdict.refused:
        raise Mismatch(
            f"{what} is not what was asked for: {'; '.join(map(str, verdict.refused))}.",
            hint=f"`mxr key` shows what is asked, `mxr show {artifact.id[:12]}` what this is.",
            detail={"id": artifact.id, "differences": [each.to_json() for each in verdict.refused]},
        )
    answer = Answer(artifact, Match(tuple(verdict.relaxed), verdict.assumed))
    check_answer(request, answer)
    return answer


def complete(answer: Answer, cache: Cache, client: Client, watch: Watch = unwatched) -> bool:
    """Downloads what the cache lacks of an answer; whether anything was.

    Blobs that other programs of the same model brought before are taken from them.
    """
    from mxr.client import transfer

    moved = False
    for file in files_of(answer):
        if not cache.holds(file.sha256):
            with cache.turn(file.sha256):
                if not cache.holds(file.sha256):
                    here = cache.pieces(answer.artifact.key.model, file)
                    transfer.download(client, file, cache.file(file.sha256), watch(file.size), here)
                    moved = True
    return moved


def shortfall(request: Request, answer: Answer) -> str:
    """What was let pass and what was taken on trust, in one line for the person; empty for an exact match."""
    artifact, asked = answer.artifact, request.demands
    parts = []
    for name in answer.match.relaxed:
        if name == "real_arch":
            made, here = (
                each or f"a true {request.key.arch}" for each in (artifact.qualities.real_arch, asked.real_arch)
            )
            parts.append(f"made on {made}, for {here}")
        elif name == "arch":
            parts.append(f"arch {artifact.key.arch} serves {request.key.arch}")
        else:
            wanted = getattr(asked, name, None) or "the default"
            parts.append(f"{name} {show(getattr(artifact.qualities, name, None))} instead of {show(wanted)}")
    for name, value in answer.match.assumed.items():
        silent = "the request" if getattr(asked, name, None) is None else "the program"
        parts.append(f"{name} {show(value)} assumed, since {silent} does not say")
    return "; ".join(parts)


def _judged(request: Request, artifact: Artifact) -> Verdict:
    generic = artifact.key.arch if artifact.digest != request.key.digest else None
    return judge(request.demands, Candidate(artifact.id, artifact.qualities, generic=generic))


def check_answer(request: Request, answer: Answer) -> None:
    """Never trust the network: what a registry answers must be for this key and these demands, and be what its id says.

    Raises `Damaged`.
    """
    artifact = answer.artifact
    generic = request.key.generic()
    digests = {request.key.digest, *([generic.digest] if generic and "arch" in answer.match.relaxed else [])}
    if not artifact.sound or artifact.digest not in digests:
        raise Damaged(
            "The registry answered with an artifact that is not for this request.",
            hint="Its database is damaged, or a proxy mixes up answers: run `mxr-registry fsck` there.",
            detail={"id": artifact.id, "digest": artifact.digest, "asked": request.key.digest},
        )
    refused = _judged(request, artifact).refused
    if refused:
        raise Damaged(
            f"The registry answered with an artifact that does not serve this request: {'; '.join(map(str, refused))}.",
            hint="It chooses by other rules than this mxr: update both to one version.",
            detail={"differences": [each.to_json() for each in refused]},
        )


def files_of(answer: Answer) -> tuple[File, ...]:
    """The files of an answer. Raises `Damaged` when it came without its manifest."""
    manifest: Manifest | None = answer.artifact.manifest
    if manifest is None:
        raise Damaged("The registry answered without a manifest.", hint="Update mxr on both sides.")
    return manifest.files


def held(answer: Answer, cache: Cache) -> bool:
    """Whether the cache has every file of an answer, and each is what its sha256 says."""
    return all(cache.holds(file.sha256) for file in files_of(answer))


def path_of(answer: Answer, cache: Cache) -> Path:
    """Where the program of an answer is in the cache."""
    files = files_of(answer)
    return cache.file(files[0].sha256) if len(files) == 1 else cache.root / "files"


def _offline(request: Request, before: Answer | None, cache: Cache) -> Answer:
    answer = before if before is not None and held(before, cache) else cache.choose(request)
    if answer is None or not held(answer, cache):
        raise Unreachable(
            "The cache has no program for this request, and --offline forbids asking the registry.",
            hint="Run the same command once without --offline.",
        )
    return answer


def _unserved(request: Request, before: Answer | None, cache: Cache, problem: Unreachable) -> Unreachable:
    """Says whether the cache has something that --offline would take."""
    answer = before or cache.choose(request)
    if answer is None or not held(answer, cache):
        return Unreachable(problem.message, hint=f"{problem.hint} The cache has no program for this request.")
    return Unreachable(
        f"{problem.message} The cache has a program that was not an exact match ({shortfall(request, answer)}).",
        hint=f"Add --offline to take it, or bring the registry back. {problem.hint}",
    )
