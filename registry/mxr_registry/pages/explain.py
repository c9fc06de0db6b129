"""Explain a miss: a request beside the nearest programs, field by field; or what an error in a log means."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.artifact.partial import PartialRequest
from mxr.errors import MxrError, NoSuchArtifactError, NotFoundError, TooLargeError, UsageError
from mxr.known_failures.explainer import find_failures
from mxr.protocol.access import ADMIN, ASK
from mxr.protocol.surveys import RequestStatus, Survey
from mxr.util.codec import canonical
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import candidates, miss_report, misses, models, namespaces, resolution
from mxr_registry.database.session import Session
from mxr_registry.jobs import survey
from mxr_registry.jobs.live_capabilities import LiveCapabilities
from mxr_registry.routes.deps import CallerDep, Services, ServicesDep

from .pasted import is_command, read_command, read_json
from .sign_in import read_form
from .site import as_json, page_router, plain, render
from .wording import SHORT, fetch_command, request_words, sentence_text, standing, why

router = page_router()

MAX_TEXT = 1 << 20
"""Bytes of a pasted text; its form is up to three times as long."""

NEAREST = 3

MissId = Annotated[str | None, Query(pattern="^[0-9a-f]{64}$", description="The id of a miss that is kept.")]


@router.get("/explain")
async def show_explain(request: Request, services: ServicesDep, caller: CallerDep, miss: MissId = None) -> Response:
    """The page: a form, or a miss that is kept."""
    found = await run_in_threadpool(view, services, caller, miss) if miss else {}
    return await run_in_threadpool(_page, request, found, "")


@router.get("/explain.json")
def show_explain_json(
    services: ServicesDep, caller: CallerDep, miss: Annotated[str, Query(pattern="^[0-9a-f]{64}$")]
) -> Response:
    """What the page shows of a miss that is kept."""
    return as_json(view(services, caller, miss))


@router.post("/explain")
async def explain_pasted(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """What somebody pasted. Nothing is queued or counted."""
    form = await read_form(request, 3 * MAX_TEXT)
    text = form.get("q", "").strip()
    try:
        found = await run_in_threadpool(_explain, services, caller, text)
    except MxrError as problem:
        found = {"problem": {"message": problem.message, "hint": problem.hint}}
    return await run_in_threadpool(_page, request, found, text)


def _page(request: Request, found: Mapping[str, Any], text: str) -> Response:
    nothing = {"request": None, "log": None, "problem": None, "miss": None}
    return render(request, "explain.html", {**nothing, **found, "text": text[:10_000]})


def _explain(services: Services, caller: Caller, text: str) -> dict[str, Any]:
    """What a pasted text means. Raises `UsageError`, `NotFoundError`."""
    if not text:
        raise UsageError("Nothing was pasted.", hint="Paste a command of mxr fetch, a request as JSON, or a log.")
    if not (is_command(text) or text.startswith("{")):
        found = [each.to_json() for each in find_failures(text)]
        if not found:
            raise NotFoundError(
                "The text has no failure that mxr knows, and is no command of mxr fetch.",
                hint="Paste the whole log, not only its last line.",
            )
        return {"log": found}
    if text.startswith("{"):
        request = read_json(text)
    else:
        with services.db.reading() as session:
            request = read_command(session, caller.namespace, text)
    return _of_request(services, caller, request)


def view(services: Services, caller: Caller, id: str) -> dict[str, Any]:
    """Return what the page shows of a miss that is kept. Raises `NotFoundError`, `UsageError`."""
    with services.db.reading() as session:
        miss = plain(misses.show_miss(session, caller.namespace, id, caller.owner))
    return _of_request(services, caller, PartialRequest.read(miss["request"]))


def _of_request(services: Services, caller: Caller, request: PartialRequest) -> dict[str, Any]:
    """Return whether there is a program by now, and else the nearest ones, field by field, and what helps."""
    namespace, hits = caller.namespace, list[str]()
    if not request.has_target:
        raise UsageError("The request has no arch.", hint="State it: --arch gfx942, or --kind ref.")
    shown = {"words": request_words(request), "command": fetch_command(request), "document": _document(request)}
    if request.open_facts:
        found = candidates.find_candidates(services.db, namespace, request)
        hits = [each["id"] for each in found["candidates"]] if found else []
    else:
        hit = resolution.find_hit(services.db, namespace, request.determined)
        hits = [hit.id] if hit else []
    with services.db.reading() as session:
        if hits:
            return {"request": {**shown, "hits": hits[:20], "grid": None}}
        context = _miss_context(session, namespace, request)
        missed = {
            **{name: context.get(name) for name in ("nearest", "accept", "reason")},
            **{"request": shown["document"], "model_name": models.called(session, namespace, request.model)},
        }
        kept = None
        with suppress(NotFoundError):
            id = sha256(canonical(shown["document"]).encode()).hexdigest()
            kept = plain(misses.show_miss(session, namespace, id, caller.owner))
            missed["model_name"] = kept["model_name"]
        status = _status(session, services, caller, request)
    sentence = why(missed)
    return {
        "request": {
            **shown,
            **{"hits": [], "grid": grid(context["nearest"][:NEAREST]), "model_name": missed["model_name"]},
            **{"why": sentence_text(sentence), "sentence": sentence, "now": standing(missed, request, status)},
        },
        "miss": kept,
    }


def _document(request: PartialRequest) -> dict[str, Any]:
    """The JSON form under which a miss of the request is kept."""
    return request.to_json() if request.open_facts else request.determined.to_json()


def _miss_context(session: Session, namespace: str, request: PartialRequest) -> dict[str, Any]:
    rule = namespaces.rule_of(session, namespace)
    error: NoSuchArtifactError
    if request.open_facts:
        error = miss_report.explain_partial(session, namespace, request, rule, [])
    else:
        error = miss_report.miss_error(session, namespace, request.determined, rule)
    return dict(error.context)


def _status(session: Session, services: Services, caller: Caller, request: PartialRequest) -> RequestStatus | None:
    """What a compile request would find; None for a viewer that may not ask."""
    if not caller.may((ASK, ADMIN)):
        return None
    with suppress(TooLargeError):
        if request.open_facts:
            live = LiveCapabilities(session, services.rules, caller.namespace, {caller.principal})
            return RequestStatus(able=bool(live.toolchains_for(request)))
        asked = Survey((request.determined,))
        return survey.survey(session, services.rules, caller, asked).standings[0]
    return None


def grid(nearest: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields in which one of the nearest programs differs: `{"ids","rows":[{"field","asked","found"}]}`.

    `found` has a value for each program; where it agrees, that of the request.
    """
    rows: dict[str, dict[str, Any]] = {}
    for place, program in enumerate(nearest):
        for each in program["differences"]:
            row = rows.setdefault(
                each["field"], {"field": each["field"], "asked": each["asked"], "found": [each["asked"]] * len(nearest)}
            )
            row["found"][place] = each["found"]
    counts = [len(program["differences"]) for program in nearest]
    return {
        "ids": [program["id"] for program in nearest],
        "counts": counts,
        "rows": list(rows.values()),
        "short": SHORT,
    }
