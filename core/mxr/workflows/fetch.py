"""Fetch a program: request -> cache -> registry -> verified download -> cache.

Every program that a fetch returns was read completely, and matches the sha256 that the registry gave for an artifact
with the key of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.attributes import RelatedKey, Request
from mxr.artifact.key import value_text
from mxr.artifact.manifest import File, Manifest
from mxr.artifact.matching import Match, Verdict, apply_rules, describe_rule
from mxr.artifact.records import Artifact
from mxr.artifact.target import Inputs
from mxr.cache import room
from mxr.cache.store import CONFIRMABLE, Answer, Cache, CachedAnswer, CachedArtifact, CacheState, is_same_offer
from mxr.errors import (
    DamagedError,
    DiskFullError,
    MismatchError,
    MxrError,
    NoSuchArtifactError,
    NotFoundError,
    TemporaryError,
    UnreachableError,
)
from mxr.facts import stated
from mxr.request.builder import PreparedRequest
from mxr.util.frozen import dataclass
from mxr.util.hashing import remember_written

if TYPE_CHECKING:
    from mxr.client.registry import Client

Connect = Callable[[], "Client"]
"""Creates the client. It is called only if the cache cannot answer."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetched program.

    `path`: its file, or the folder of several files. `source`: `cache`, `registry` or `compiled`. `answer`: its
    artifact, and how well it matches the request. `warnings`: what the user must know, such as that the registry could
    not confirm the answer. `reshape`: the requested shapes, if the program takes larger ones as well; else empty.
    """

    path: Path
    source: str
    answer: Answer
    warnings: tuple[str, ...] = ()
    reshape: Inputs = ()

    @property
    def artifact(self) -> Artifact:
        """The artifact of the program: its key, its attributes, its provenance."""
        return self.answer.artifact

    @property
    def match(self) -> Match:
        """How well the artifact matches the request."""
        return self.answer.match

    def to_json(self) -> dict[str, Any]:
        """Return the document of `mxr fetch --json`."""
        artifact = self.artifact
        return {
            "path": str(self.path),
            "source": self.source,
            "id": artifact.id,
            "sha256": artifact.sha256,
            "digest": artifact.digest,
            "key": artifact.key.to_json(),
            "attributes": artifact.attributes.to_json(),
            "match": self.match.to_json(),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class LookupResult:
    """An answer to a request. `client`: the registry that gave it; None if the cache gave it and has its files.

    `etag`: the entity tag of the artifact, where the registry gave the answer.
    """

    answer: Answer
    client: Client | None = None
    etag: str = ""
    warnings: tuple[str, ...] = ()


def fetch(
    request: Request,
    cache: Cache,
    connect: Connect | None,
    *,
    refresh: bool = False,
) -> Fetched:
    """Return the right program for a request, in the cache.

    Does not ask the registry if the cache has an answer to the same request that is younger than `max_age`, and for
    which nothing was relaxed, or without `connect` (offline). `refresh`: always ask the registry. Raises
    `NoSuchArtifactError` with the nearest artifacts, `UnreachableError` if the cache has no answer either, and
    `DamagedError` if the answer or the downloaded bytes are wrong.
    """
    return download_found(request, lookup(request, cache, connect, refresh=refresh), cache)


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """What was found for a prepared request. `request`: what it answers; `why`: a sentence, if it is another one."""

    request: Request
    result: LookupResult
    why: str = ""


def lookup_prepared(
    prepared: PreparedRequest, cache: Cache, connect: Connect | None, *, refresh: bool = False
) -> FoundProgram:
    """Find the program of a prepared request without downloading it. Raises as `fetch` does.

    Where there is none for exactly the requested shapes, one that takes them and larger ones serves.
    """
    request = prepared.request
    if prepared.found is not None:
        cache.collect_proof(prepared.found.answer.artifact, connect)
        return FoundProgram(request, prepared.found)
    try:
        return FoundProgram(request, lookup(request, cache, connect, name=prepared.model.name, refresh=refresh))
    except NoSuchArtifactError:
        if connect is None or request.key.vendor != "hygon":
            raise
        from .larger_shapes import find_larger

        client = connect()
        larger = find_larger(request, client)
        if larger is None:
            raise
        return FoundProgram(larger.request, lookup(larger.request, cache, lambda: client), larger.why)


def download_prepared(prepared: PreparedRequest, found: FoundProgram, cache: Cache) -> Fetched:
    """Download what the cache lacks of what `lookup_prepared` found. Its match tells what was assumed."""
    fetched = download_found(found.request, found.result, cache)
    if found.why:
        fetched = replace(fetched, warnings=(*fetched.warnings, found.why), reshape=prepared.request.key.inputs)
    match = Match(fetched.match.relaxed, {**fetched.match.assumed, **prepared.assumed})
    return replace(fetched, answer=replace(fetched.answer, match=match))


def lookup(
    request: Request, cache: Cache, connect: Connect | None, *, name: str = "", refresh: bool = False
) -> LookupResult:
    """Find the program for a request without downloading it. Arguments and errors are those of `fetch`.

    `name`: what this host calls the model.
    """
    found = _lookup(request, cache, connect, name=name, refresh=refresh)
    cache.collect_proof(found.answer.artifact, connect)
    return found


def _lookup(request: Request, cache: Cache, connect: Connect | None, *, name: str, refresh: bool) -> LookupResult:
    cached = None if refresh else cache.lookup(request)
    state = CacheState.ABSENT if cached is None else cached.state
    if cached is not None and state is CacheState.FRESH:
        return LookupResult(cached.answer)
    if connect is None:
        return LookupResult(_offline_answer(request, cached, cache))
    client = connect()
    try:
        if cached is not None and state in CONFIRMABLE and confirm_record(cached.record, cache, client):
            return LookupResult(cached.answer)
        spare = not refresh and (cached is not None or cache.best_match(request) is not None)
        found, etag = _resolve_noted(request, cache, client, name=name, hurry=spare)
        return LookupResult(found, client, etag)
    except (UnreachableError, TemporaryError) as problem:
        known = None if refresh else _servable_away(request, cached, cache)
        if known is not None:
            return LookupResult(known.answer, warnings=stale_warnings(known.record, problem))
        raise _unreachable_error(request, cached, cache, problem) from problem


def _resolve_noted(request: Request, cache: Cache, client: Client, *, name: str, hurry: bool) -> tuple[Answer, str]:
    """Return what the registry answers, as `resolve_with_etag`, and note who answered and what it does not have."""
    try:
        found = resolve_with_etag(request, client, name=name, hurry=hurry)
    except NoSuchArtifactError as miss:
        if client.identity:
            cache.note_reply(client)
            cache.store_miss(request)
        from mxr.client.hints import with_commands

        raise with_commands(miss, request) from None
    cache.note_reply(client)
    return found


def confirm_record(record: CachedArtifact, cache: Cache, client: Client) -> bool:
    """Ask the registry whether an artifact is still there and unchanged, and note what it says.

    Returns false if it is gone or changed, or if another registry answers than the one that gave the record. A record
    that only a bundle brought is compared by its facts. Raises `UnreachableError` or `TemporaryError`.
    """
    identity, before = record.artifact.id, cache.partition
    try:
        changed, etag = client.confirm(identity, record.etag)
        gone = False
    except NotFoundError:
        changed, etag, gone = None, "", True
    if not client.identity:
        return False
    cache.note_reply(client)
    if record.age is not None and (before is None or cache.partition is None or cache.partition.name != before.name):
        return False
    with suppress(MxrError):
        if gone:
            cache.store_removal(record)
        elif changed is not None:
            cache.store_artifact(changed, etag or record.etag)
        else:
            cache.confirm_artifact(record.artifact, etag or record.etag)
    if changed is not None and record.age is None:
        return is_same_offer(changed, record.artifact)
    return not gone and changed is None


def stale_warnings(record: CachedArtifact, problem: MxrError) -> tuple[str, ...]:
    """Return the warning for an artifact that serves although the registry could not confirm it.

    There is none for what only a bundle brought: its host may have no registry.
    """
    if record.age is None:
        return ()
    age = told_age(record.age)
    return (f"the registry has not confirmed artifact {record.artifact.id[:12]} for {age}: {problem.message}",)


def told_age(seconds: float) -> str:
    """Return how long ago something was, for people."""
    hours = seconds / 3600
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"


def resolve(request: Request, client: Client) -> Answer:
    """Return the verified answer of the registry. Raises `NoSuchArtifactError`, `UnreachableError`, `DamagedError`."""
    return resolve_with_etag(request, client)[0]


def resolve_with_etag(request: Request, client: Client, *, name: str = "", hurry: bool = False) -> tuple[Answer, str]:
    """Return the verified answer of the registry and the entity tag of the artifact. Raises as `resolve` does."""
    hit = client.resolve(request, name=name, hurry=hurry)
    if hit.artifact.recall is not None:
        raise hit.artifact.recall.error(hit.artifact.id)
    if not hit.artifact.answers_requests:
        raise DamagedError(
            f"The registry answered with artifact {hit.artifact.id[:12]}, which its own rule excludes: it is "
            f"{hit.artifact.origin} and not promoted, and the namespace serves {describe_rule(hit.artifact.serve)}.",
            hint="Run the same version of mxr on both sides, and check for proxies that change replies.",
            context={"id": hit.artifact.id, "origin": hit.artifact.origin, "serve": hit.artifact.serve},
        )
    answer = Answer(hit.artifact, hit.match)
    check_answer(request, answer)
    return answer, hit.etag


def download_found(request: Request, found: LookupResult, cache: Cache) -> Fetched:
    """Download what the cache lacks of the program that `lookup` found, and return it."""
    answer = found.answer
    cache.require_proof(answer.artifact)
    if found.client is None:
        log_use(answer, cache, None)
        return make_fetched(answer, cache, "cache", found.warnings)
    moved = download_missing(answer, cache, found.client)
    # A cache that is not writable still serves its content: only a download into it requires writing.
    with nullcontext() if moved and not cache.optional else suppress(MxrError):
        cache.store_answer(request, answer, found.etag)
    cache.report_uses(found.client)
    return make_fetched(answer, cache, "registry" if moved else "cache")


def fetch_compiled(identity: str, request: Request, cache: Cache, client: Client) -> Fetched:
    """Return the program that was compiled for a request, by the id of its artifact and without another resolve.

    Raises `MismatchError` if the artifact does not match the request, `NoSuchArtifactError` if the namespace serves
    only promoted artifacts, and `DamagedError` if it does not match its id.
    """
    artifact, etag = client.confirm(identity, "")
    assert artifact is not None
    cache.note_reply(client)
    answer = check_match(request, artifact, "The compiled program")
    if artifact.recall is not None:
        raise artifact.recall.error(identity)
    if not answer.artifact.answers_requests:
        raise NoSuchArtifactError(
            f"The program is compiled as artifact {identity[:12]}, but the namespace serves "
            f"{describe_rule(answer.artifact.serve)}.",
            hint=f"Promote it: `mxr promote {identity[:12]}`. Then repeat the command.",
            context={"id": answer.artifact.id, "serve": answer.artifact.serve},
        )
    cache.collect_proof(artifact, lambda: client)
    cache.require_proof(artifact)
    moved = download_missing(answer, cache, client)
    with nullcontext() if moved and not cache.optional else suppress(MxrError):
        cache.store_answer(request, answer, etag)
    log_use(answer, cache, client)
    return make_fetched(answer, cache, "compiled")


def make_fetched(answer: Answer, cache: Cache, source: str, warnings: tuple[str, ...] = ()) -> Fetched:
    """Return what was fetched, with what the user must know of any such program.

    Every program that a fetch returns passes here: raises `UntrustedError` where signatures are required.
    """
    cache.require_proof(answer.artifact)
    if answer.artifact.key.uncalibrated or answer.artifact.attributes.tuning == "cross":
        from mxr.artifact.compile_support import program_warnings

        warnings += program_warnings(answer.artifact.key, answer.artifact.attributes)
    warnings += cache.staging_warnings()
    for file in files_of(answer):
        room.note_used(cache, file.sha256)
    return Fetched(cached_path(answer, cache), source, answer, warnings)


def log_use(answer: Answer, cache: Cache, client: Client | None) -> None:
    """Log a use that no resolve counted, and report it with `client`; without one, a later fetch reports it."""
    cache.log_use(answer.artifact.id)
    if client is not None:
        cache.report_uses(client)


def check_match(request: Request, artifact: Artifact, what: str) -> Answer:
    """Return an artifact as the answer to a request. `what` names it in errors.

    Raises `MismatchError` if it does not match the request, and `DamagedError` if it does not match its id.
    """
    verdict = _judge(request, artifact)
    if verdict.refused:
        raise MismatchError(
            f"{what} does not match the request: {'; '.join(map(str, verdict.refused))}.",
            hint=f"Compare the request (`mxr key`) with the artifact (`mxr show {artifact.id[:12]}`).",
            context={"id": artifact.id, "differences": [each.to_json() for each in verdict.refused]},
        )
    answer = Answer(artifact, Match(tuple(verdict.relaxed), verdict.assumed))
    check_answer(request, answer)
    return answer


def download_missing(answer: Answer, cache: Cache, client: Client) -> bool:
    """Download the files of an answer that the cache does not have. Returns whether there were any.

    Copies blobs that cached programs of the same model also contain. What the cache cannot take is staged beside the
    output, if there is one.
    """
    moved = False
    for file in files_of(answer):
        if not cache.intact_or_removed(file.sha256):
            with cache.download_lock(file.sha256):
                if not cache.intact_or_removed(file.sha256):
                    download_file(file, cache, client, answer.artifact.key.model)
                    moved = True
    return moved


def download_file(file: File, cache: Cache, client: Client, model: str = "") -> None:
    """Download one file into the cache, or beside the output where the cache cannot take it.

    `model`: whose cached programs may hold blobs of it. Raises as `transfer.download` does.
    """
    from mxr.client import transfer

    here, known = (cache.find_blobs(model, file), cache.model(model)) if model else ({}, None)

    def bring(final: Path, target: AbstractContextManager[int] | None = None) -> None:
        written = transfer.download(client, file, final, here, target, known.name if known else None)
        remember_written(final, written, {"sha256": file.sha256}, cache.memo)

    try:
        final = cache.prepare_file(file.sha256)
    except MxrError as problem:
        bring(cache.stage_file(file.sha256, problem))
        return
    cache.sweep_parts()
    room.make_room(cache, file.size)
    try:
        bring(final, cache.partial_file(file.sha256, final))
    except DiskFullError as problem:
        bring(cache.stage_file(file.sha256, cache.folder.explained(problem)))


def describe_inexact_match(request: Request, answer: Answer) -> str:
    """Return the relaxations and assumptions of an answer as one line for people; empty for an exact match."""
    artifact, constraints = answer.artifact, request.constraints
    parts = []
    for name in answer.match.relaxed:
        if name == "real_arch":
            compiled, wanted = (
                each or "no override" for each in (artifact.attributes.real_arch, constraints.real_arch)
            )
            parts.append(f"real_arch {compiled} instead of {wanted}")
        elif name in ("arch", "rocm"):
            parts.append(f"{name} {getattr(artifact.key, name)} instead of {getattr(request.key, name)}")
        else:
            wanted = getattr(constraints, name, None) or "the default"
            parts.append(
                f"{name} {value_text(getattr(artifact.attributes, name, None))} instead of {value_text(wanted)}"
            )
    silent: dict[str, list[str]] = {}
    for name, value in answer.match.assumed.items():
        who = "the request" if getattr(constraints, name, None) is None else "the program"
        silent.setdefault(who, []).append(f"{name} {value_text(value)}")
    for who, values in silent.items():
        them = "it" if len(values) == 1 else "them"
        parts.append(f"{', '.join(values)} assumed, because {who} does not specify {them}")
    return "; ".join(parts)


def _judge(request: Request, artifact: Artifact) -> Verdict:
    related = RelatedKey(request.key, artifact.key)
    return apply_rules(request.constraints, artifact.candidate(related))


def check_answer(request: Request, answer: Answer) -> None:
    """Verify an answer of a registry: it must match the key and the constraints of the request, and its own id.

    Raises `DamagedError`.
    """
    artifact = answer.artifact
    related = request.related.get(artifact.digest)
    if not artifact.sound or related is None or not {*related.relaxed} <= {*answer.match.relaxed}:
        raise DamagedError(
            "The registry answered with an artifact of another request.",
            hint="Its database is damaged, or a proxy mixes up replies. Run `mxr-registry fsck` on the registry.",
            context={"id": artifact.id, "digest": artifact.digest, "asked": request.key.digest},
        )
    refused = _judge(request, artifact).refused
    if refused:
        raise DamagedError(
            f"The registry answered with an artifact that does not match the request: {'; '.join(map(str, refused))}.",
            hint="Registry and client have different rules. Run the same version of mxr on both sides.",
            context={"differences": [each.to_json() for each in refused]},
        )


def files_of(answer: Answer) -> tuple[File, ...]:
    """Return the files of an answer. Raises `DamagedError` for an answer without a manifest."""
    manifest: Manifest | None = answer.artifact.manifest
    if manifest is None:
        raise DamagedError(
            "The registry answered without a manifest.", hint="Run the same version of mxr on both sides."
        )
    return manifest.files


def cached_path(answer: Answer, cache: Cache) -> Path:
    """Return the path in the cache of the program of an answer."""
    files = files_of(answer)
    return cache.file_path(files[0].sha256) if len(files) == 1 else cache.root / "files"


def _offline_answer(request: Request, cached: CachedAnswer | None, cache: Cache) -> Answer:
    """Return the answer that serves without a registry. Raises `UnreachableError` if there is none."""
    found = _servable_offline(request, cached, cache)
    if found is None and not cache.damaged:
        for id, recall in cache.recalled.items():
            raise recall.error(id)
    if found is None:
        raise UnreachableError(
            f"{what_cache_lacks(cache)} {stated('offline')} is set.",
            hint=f"Run the same command once without {stated('offline')}.",
        )
    return found


def what_cache_lacks(cache: Cache) -> str:
    """Return the sentence for a request that the cache cannot answer: a damaged program is not one it never had."""
    if cache.damaged:
        shas = ", ".join(sorted(each[:12] for each in cache.damaged))
        return f"The program of this request in the cache was damaged, and was removed (sha256 {shas})."
    for id, recall in cache.recalled.items():
        return f"The cache has no program for this request that may be used: {recall.sentence(id)}."
    return "The cache has no program for this request."


def _servable_away(request: Request, cached: CachedAnswer | None, cache: Cache) -> CachedAnswer | None:
    """Return what serves a request while the registry is away.

    A request leaves nothing of its key open, so that any program that fits it is right: what the registry answered,
    else the best of what it confirmed within `max_stale`.
    """
    if cached is not None and cached.state in (CacheState.UNCONFIRMED, CacheState.RELAXED):
        return cached
    best = cache.best_match(request)
    if best is None or cache.state_of(best.record) not in (CacheState.FRESH, CacheState.UNCONFIRMED):
        return None
    return best if cache.all_intact_or_removed(best.answer) else None


def _servable_offline(request: Request, cached: CachedAnswer | None, cache: Cache) -> Answer | None:
    if cached is not None and cache.all_intact_or_removed(cached.answer):
        return cached.answer
    best = cache.best_match(request)
    return best.answer if best is not None and cache.all_intact_or_removed(best.answer) else None


def _unreachable_error(request: Request, cached: CachedAnswer | None, cache: Cache, problem: MxrError) -> MxrError:
    """Return the error, extended by whether --offline would find a program in the cache."""
    answer = _servable_offline(request, cached, cache)
    if answer is None:
        hint = f"{problem.hint} {what_cache_lacks(cache)}"
        return type(problem)(problem.message, hint=hint)
    best = cached or cache.best_match(request)
    why = "the registry has not confirmed for longer than max_stale"
    if best is not None and best.record.age is not None and best.record.age < 0:
        why = "the registry confirmed in the future: the clock of this host is wrong, or was"
    if not answer.match.exact:
        why += f" ({describe_inexact_match(request, answer)})"
    return type(problem)(
        f"{problem.message} The cache has a program that {why}.",
        hint=f"Add {stated('offline')} to use it. {problem.hint}",
    )
