"""One artifact: who states each fact, how to get it, what is in the file, whether it is used, and what is like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response

from mxr.artifact.key import Key
from mxr.artifact.partial import PartialRequest
from mxr.consumers import CONSUMERS, Consumer
from mxr.errors import UsageError
from mxr.protocol.access import ADMIN
from mxr.util import codec
from mxr_registry.access.scopes import OPERATIONS, Caller
from mxr_registry.artifacts import catalog, locks, usage
from mxr_registry.database import trail
from mxr_registry.routes.deps import CallerDep, Services, ServicesDep

from .filters import value_text
from .site import as_json, own_url, page_router, plain, render
from .wording import SHORT, fetch_command, field_text, request_words

router = page_router()

DAYS = 90
SIBLINGS = 8

TOLD = {
    "artifact.publish": ("ok", "Published"),
    "artifact.amend": ("file", "Facts replaced"),
    "artifact.promote": ("star", "Promoted"),
    "artifact.yank": ("warn", "Yanked"),
    "artifact.quarantine": ("bad", "Quarantined"),
    "artifact.unyank": ("ok", "Recall ended"),
    "artifact.restore": ("push", "Restored"),
}
"""How the page tells events: icon and words."""

STATED = {
    "reader": ("ok", "read from the file", "file"),
    "worker": ("off", "the worker", "tool"),
    "publisher": ("warn", "a claim, not verified", "unk"),
}


@router.get("/artifacts/{id}.json")
def show_artifact_json(id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """What the page shows."""
    return as_json(view(services, caller, id))


@router.get("/artifacts/{id}")
def show_artifact(id: str, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The page."""
    data = view(services, caller, id)
    artifact = data["artifact"]
    asked = PartialRequest.read({"key": artifact["key"], "constraints": constraints_of(artifact["attributes"])})
    more = {
        "words": request_words(asked),
        "facts": facts_of(artifact),
        "told": TOLD,
        "fetches": [] if artifact["recall"] else fetches(artifact, asked, own_url(request)),
    }
    more["sees_jobs"] = caller.may((*OPERATIONS["list_jobs"], ADMIN))
    return render(request, "artifact.html", {**data, **more})


def view(services: Services, caller: Caller, id: str) -> dict[str, Any]:
    """Return what the page shows. Raises `NotFoundError`, `UsageError`."""
    with services.db.reading() as session:
        row = catalog.find_artifact(session, caller.namespace, id)
        events = trail.list_events(
            session,
            caller.namespace,
            trail.EventFilters(subject=row.id, limit=20),
            everything=caller.is_admin,
        )
        return {
            "artifact": plain(catalog.show_row(row, services.db.serve)),
            "events": plain(events)["items"],
            "locks": locks.pinning(session, row.seq),
            "uses": usage.by_day(session, row.seq, DAYS),
            "siblings": plain(catalog.siblings(session, caller.namespace, row, SIBLINGS)),
        }


def constraints_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constraints of a host that this program fits."""
    found = {name: attributes.get(name) for name in ("num_cu", "chiplets", "real_arch")}
    features = {name: attributes.get(name) for name in ("sramecc", "xnack")}
    return {**found, **{name: None if sign == "any" else sign for name, sign in features.items()}}


def facts_of(artifact: Mapping[str, Any]) -> list[tuple[str, Any, tuple[str, str, str] | None]]:
    """Return each fact of key and attributes with its value, and who states it."""
    key, sources = dict(artifact["key"]), artifact["sources"]
    inputs = [(f"inputs.{name}", dims, sources.get("inputs")) for name, dims in key.pop("inputs").items()]
    rows = [(name, value, sources.get(name)) for name, value in key.items() if name not in ("v",)]
    rows += inputs
    rows += [(name, value, sources.get(name)) for name, value in artifact["attributes"].items()]
    return [
        (name, value, STATED.get(source or "")) for name, value, source in rows if value not in (None, {}, [], "any")
    ]


def fetches(artifact: Mapping[str, Any], request: PartialRequest, url: str) -> list[tuple[str, str, str]]:
    """Return for each consumer its summary, and the command to fetch the program or why the consumer cannot use it."""
    key = codec.decode(Key, artifact["key"], "key", lenient=True)
    found = []
    for name, consumer in CONSUMERS.items():
        reason = _unusable(consumer, key)
        found.append((consumer.summary, "" if reason else fetch_command(request, "--for", name), reason))
    by_id = f"curl -H @header -O {url}/v1/artifacts/{artifact['id'][:SHORT]}/files/model.mxr"
    usable = [*(each for each in found if each[1]), ("This one by its id, whatever is promoted", by_id, "")]
    return usable + [each for each in found if not each[1]]


def _unusable(consumer: Consumer, key: Key) -> str:
    """Why a consumer asks for another program than one with this key; empty if it can use this one."""
    if consumer.records != (key.form != "whole"):
        what = ("whole programs", "programs that a session of ONNX Runtime recorded")
        return f"It loads {what[consumer.records]}; this one is of the form {key.form}."
    for flag in ("offload_copy", "fast_math"):
        if (wanted := getattr(consumer, flag)) != getattr(key, flag):
            return f"It asks for {field_text(flag, wanted)}; this one has {value_text(not wanted)}."
    try:
        consumer.check("model", key)
    except UsageError as problem:
        return problem.message
    return ""
