"""Complete a partial request: the registry says which programs it can mean, or the cache where the registry is away.

    one program     the request for it, with what was assumed and the options that state it
    several         `UsageError` with the options that choose; `context.candidates` lists them, newest toolchain first
    none            `NoSuchArtifactError` with all that is open, the nearest programs, and the command that compiles one

What is never open (`mxr.artifact.partial`) is never assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mxr.artifact.candidates import Candidates, choices, facts_of, varying
from mxr.artifact.key import value_text
from mxr.artifact.matching import ANY, Match
from mxr.artifact.partial import PartialRequest
from mxr.artifact.records import Artifact
from mxr.artifact.target import FEATURES, GfxArch
from mxr.cache.store import Answer, Cache, CachedArtifact, CacheState
from mxr.display.text import counted, shell_quoted
from mxr.errors import DamagedError, MxrError, NoSuchArtifactError, TemporaryError, UnreachableError, UsageError
from mxr.facts import BY_NAME, FACTS, FLAG, NAMES, SHAPES, stated
from mxr.request.builder import PreparedRequest
from mxr.request.choices import distinguishing, options_of, request_words

from . import fetch as fetch_workflow
from .fetch import Connect, LookupResult, what_cache_lacks

MAX_LISTED = 50
"""Candidates that an error lists. The registry sends no more."""

REPEATED = tuple(fact.flag for fact in FACTS if fact.kind in (NAMES, SHAPES))
"""Options that a command can have several times."""


def complete_request(built: PreparedRequest, cache: Cache, connect: Connect | None) -> PreparedRequest:
    """Complete a request by the only program that it can mean. Without `connect` (offline), the cache decides.

    Raises `UsageError` if there are several, `NoSuchArtifactError` if there is none, `UnreachableError` if the registry
    is away and the cache has none either.
    """
    listed, records, problem = _list_candidates(built, cache, connect)
    if listed.total > 1:
        raise _several_error(built, listed)
    choice = listed.candidates[0]
    request = choice.request(built.known)
    opened = set(built.known.open_facts)
    assumed = {name: value for name, value in facts_of(choice).items() if name in opened and value is not None}
    words = options_of(built, choice)
    stating = tuple(map(tuple, words.values()))
    prepared = replace(built, known=PartialRequest.of(request), assumed=assumed, stating=stating)
    if choice.id not in records:
        return prepared
    record = records[choice.id]
    answer = fetch_workflow.check_match(request, record.artifact, "The cached program")
    warnings = () if problem is None else fetch_workflow.stale_warnings(record, problem)
    return replace(prepared, found=LookupResult(answer, warnings=warnings))


def complete_command(prepared: PreparedRequest, artifact: Artifact) -> str:
    """Return the command that leaves nothing open: with what was taken from the only program, features included."""
    # Not that of the artifact, which may be the family of this one.
    own = prepared.request.key.arch
    arch = str(GfxArch.of(own, artifact.attributes)) if own else None
    flag = BY_NAME["arch"].flag
    rest = [word for row in prepared.stating if flag not in row for word in row]
    return _command(prepared, [*([flag, arch] if arch else []), *rest])


def _list_candidates(
    built: PreparedRequest, cache: Cache, connect: Connect | None
) -> tuple[Candidates, dict[str, CachedArtifact], MxrError | None]:
    """Return the candidates; where the cache has them, also its records and why the registry could not be asked."""
    partial = built.known
    if connect is None:
        records = {each.artifact.id: each for each in _cached_programs(partial, cache)}
        listed = _cached_candidates(partial, records)
        if listed is None:
            raise UnreachableError(
                f"{what_cache_lacks(cache)} {stated('offline')} is set.",
                hint=f"Run the same command once without {stated('offline')}.",
            )
        return listed, records, None
    try:
        client = connect()
        try:
            found = client.candidates(partial, name=built.model.name, hurry=cache.completion(partial) is not None)
        except NoSuchArtifactError as miss:
            if client.identity:
                cache.note_reply(client)
            cache.store_completion(partial, None)
            raise _with_compile_command(miss, built) from None
        cache.note_reply(client)
    except (UnreachableError, TemporaryError) as problem:
        return *_completed_before(partial, cache, problem), problem
    if not found.candidates or any(not partial.admits(candidate.key) for candidate in found.candidates):
        raise DamagedError(
            "The registry answered with candidates for another request.",
            hint="Run the same version of mxr on both sides, and check for proxies that change replies.",
        )
    only = found.candidates[0].id if found.total == 1 and not found.more else None
    cache.store_completion(partial, only)
    return found, {}, None


def _completed_before(
    partial: PartialRequest, cache: Cache, problem: MxrError
) -> tuple[Candidates, dict[str, CachedArtifact]]:
    """Return the only candidate of the cache, if the registry last completed this very request by it.

    That nothing else is cached is no reason: the registry may have several that fit. Raises `problem` with a hint.
    """
    serving = (CacheState.FRESH, CacheState.UNCONFIRMED)
    records = {each.artifact.id: each for each in _cached_programs(partial, cache) if cache.state_of(each) in serving}
    listed = _cached_candidates(partial, records)
    # Several that the cache has are several at the registry, too.
    if listed is not None and (listed.total > 1 or listed.candidates[0].id == cache.completion(partial)):
        return listed, records
    hint = f"{problem.hint} {what_cache_lacks(cache)}"
    if records:
        hint = (
            "The cache has a program that fits, but the registry did not say that this request means it. State all "
            f"facts (`mxr fetch --help`), or add {stated('offline')} to take what is cached. {problem.hint}"
        )
    raise type(problem)(problem.message, hint=hint) from problem


def _cached_programs(partial: PartialRequest, cache: Cache) -> Iterator[CachedArtifact]:
    """The cached programs that the request can mean and that the cache has whole."""
    for record in cache.servable_records(partial.model):
        if partial.admits(record.artifact.key) and cache.all_intact_or_removed(Answer(record.artifact, Match())):
            yield record


def _cached_candidates(partial: PartialRequest, records: Mapping[str, CachedArtifact]) -> Candidates | None:
    rows = [(record.artifact.key, record.artifact.candidate()) for record in records.values()]
    found = choices(partial, rows, serve=ANY)
    return Candidates(tuple(found[:MAX_LISTED]), len(found), varies=varying(found)) if found else None


def _several_error(built: PreparedRequest, listed: Candidates) -> UsageError:
    rows = [options_of(built, candidate) for candidate in listed.candidates]
    chosen = [_quoted(words) for words in distinguishing(rows)]
    hint = "Add the options of one of them."
    if listed.more or listed.total > len(rows):
        most_first = sorted(listed.varies.items(), key=lambda row: -row[1])
        counts = {_option(name): number for name, number in most_first}
        narrowing = ", ".join(f"{option} ({counted(number, 'value')})" for option, number in counts.items())
        hint = f"Narrow them with {narrowing}."
    number = f"At least {listed.total}" if listed.more else str(listed.total)
    context = {
        "candidates": [
            {"id": each.id, "options": words, "key": each.key.to_json()}
            for each, words in zip(listed.candidates, chosen, strict=True)
        ],
        "total": listed.total,
        "varies": dict(listed.varies),
    }
    return UsageError(f"{number} programs fit this request.", hint=hint, context=context)


def _option(fact: str) -> str:
    """The option that settles a fact."""
    if fact.startswith("inputs."):
        return f"{BY_NAME['batch'].flag} or {BY_NAME['inputs'].flag}"
    flags = fact in BY_NAME and BY_NAME[fact].kind == FLAG
    return BY_NAME["arch" if fact in FEATURES else "consumer" if flags else fact].flag


def _with_compile_command(miss: NoSuchArtifactError, built: PreparedRequest) -> NoSuchArtifactError:
    """Return the miss with the command that compiles the program, with the newest toolchain that has workers."""
    said = miss.context.get("toolchains")
    toolchains = [each for each in said if isinstance(each, Mapping)] if isinstance(said, list) else []
    if {"serve", "static"} & miss.context.keys():
        return miss
    if not toolchains or built.model.path is None:
        hint = f"No live worker can compile it. Compile it with MIGraphX, and publish it: `{_push_command(built)}`."
    else:
        hint = f"Have a worker compile it: `{_compile_command(built, toolchains[0])}`."
    return NoSuchArtifactError(miss.message, hint=hint, context=miss.context)


def _compile_command(built: PreparedRequest, toolchain: Mapping[str, object]) -> str:
    opened = set(built.known.open_facts)
    words = [
        word
        for name in ("rocm", "migraphx")
        if name in opened
        for word in (f"--{name}", value_text(toolchain.get(name)))
    ]
    words += ["--batch", "N"] if any(name.startswith("inputs.") for name in opened) else []
    words += ["--for", "CONSUMER"] if {"offload_copy", "fast_math"} & opened else []
    return _command(built, [*words, "--on-miss", "wait"])


def _push_command(built: PreparedRequest) -> str:
    """The command that publishes a program for the request. What the file tells need not be stated."""
    partial, options, model = built.known, built.options, built.model
    words = ["mxr", "push", "FILE.mxr", "--model", str(model.path or model.identity)]
    if partial.kind == "ref":
        words += ["--kind", "ref"]
    else:
        words += ["--vendor", partial.vendor] if partial.vendor not in (None, "amd") else []
        words += ["--rocm", options.rocm or partial.rocm or "VERSION"]
    words += ["--for", options.consumer or "CONSUMER"]
    words += ["--precision", options.precision] if options.precision is not None else []
    return _quoted(words)


def _command(built: PreparedRequest, words: Sequence[str]) -> str:
    rows = [word for row in request_words(built.options) if row[0] not in words or row[0] in REPEATED for word in row]
    return _quoted(["mxr", "fetch", str(built.model.path or built.model.identity), *rows, *words])


def _quoted(words: Sequence[str]) -> str:
    return " ".join(map(shell_quoted, words))
