"""The matrix: what is compiled for which target, what is being compiled, what failed, and what was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from mxr.artifact.target import dim_from_json, show_dims
from mxr.display.text import shell_quoted
from mxr.protocol.access import ADMIN
from mxr_registry.access.scopes import OPERATIONS, Caller
from mxr_registry.artifacts import by_model
from mxr_registry.database.paging import PageFilters, cursor, read_cursor
from mxr_registry.database.session import Session
from mxr_registry.jobs import tracking
from mxr_registry.routes.deps import CallerDep, Services, ServicesDep

from .site import as_json, page_router, plain, render

router = page_router()

AT_ONCE = 12
"""Names of models on one page."""

COLUMNS = 8
"""Targets that are shown, those with most programs."""

IN_CELL = 24
"""Shapes in one cell."""

MOST_BYTES = 70_000
"""Bytes of a page, about, that the rows may take."""

AVAILABLE, LOST, RUNNING, QUEUED, FAILED, MISSING = STATES = (
    *("available", "lost", "running", "queued", "failed", "missing"),
)
"""The first of these that holds is the state of a shape."""


class MatrixFilters(PageFilters, frozen=True):
    """Filters of the page."""

    limit: int = Field(default=AT_ONCE, ge=1, le=AT_ONCE)
    name: str | None = Field(default=None, max_length=300, description="How the name of the model begins.")
    arch: str | None = Field(default=None, max_length=250)
    rocm: str | None = Field(default=None, max_length=250)
    state: Literal["available", "lost", "running", "queued", "failed", "missing"] | None = None
    columns: Literal["all"] | None = Field(default=None, description="All targets.")


Filters = Annotated[MatrixFilters, Query()]


@router.get("/matrix")
def show_matrix(request: Request, services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """The page."""
    options = {"--arch": filters.arch, "--rocm": filters.rocm}
    words = ["mxr", "ls", *([filters.name] if filters.name else [])]
    words += [word for name, value in options.items() if value for word in (name, value)]
    shown = {"filters": filters.model_dump(), "command": " ".join(map(shell_quoted, words)), "states": STATES}
    data = view(services, caller, filters)
    return render(request, "matrix.html", {**shown, **data, "shown": fitting(data["rows"])})


@router.get("/matrix.json")
def show_matrix_json(services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """What the page shows."""
    return as_json(view(services, caller, filters))


def fitting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first rows that a page has room for, each with at most `IN_CELL` shapes for a target."""
    found, left = list[dict[str, Any]](), MOST_BYTES
    for row in rows:
        cells = [cell[:IN_CELL] for cell in row["cells"]]
        left -= 500 + sum(100 + 220 * len(cell) for cell in cells)
        if left < 0 and found:
            break
        found.append({**row, "cells": cells, "more": [len(cell) - IN_CELL for cell in row["cells"]]})
    return found


def view(services: Services, caller: Caller, filters: MatrixFilters) -> dict[str, Any]:
    """Return what the page shows.

    `{"targets":[{"arch","rocm","migraphx"}],"more_targets","rows":[{"name","model","precision","cells":[[SHAPE]]}],
    "next"}`, with `{"shape","state","id"}` for each shape: the id of the artifact, the job or the miss. Raises
    `UsageError`.
    """
    last = read_cursor("matrix", filters.after, str)[0] if filters.after is not None else ""
    sees_jobs = caller.may((*OPERATIONS["list_jobs"], ADMIN))
    with services.db.reading() as session:
        names = list(by_model.names_after(session, caller.namespace, last, filters.name or "", filters.limit + 1))
        shown = names[: filters.limit]
        found = [entry for name in shown for entry in _entries(session, caller, name, sees_jobs=sees_jobs)]
    kept = [each for each in found if _matches(each, filters)]
    used = Counter(each["target"] for each in kept)
    targets = sorted(used, key=lambda target: (-used[target], target))
    targets = sorted(targets if filters.columns else targets[:COLUMNS])
    return {
        "targets": [dict(zip(("arch", "rocm", "migraphx"), target, strict=True)) for target in targets],
        "more_targets": len(used) - len(targets),
        "rows": _rows(kept, targets),
        "archs": sorted({each["target"][0] for each in found}),
        "versions": sorted({each["target"][1] for each in found if each["target"][1]}),
        "next": cursor("matrix", (shown[-1],)) if len(names) > len(shown) else None,
    }


def _entries(session: Session, caller: Caller, name: str, *, sees_jobs: bool) -> Iterable[dict[str, Any]]:
    """What there is of the models with a name: artifacts, jobs, misses."""
    namespace = caller.namespace
    artifacts = plain(by_model.artifacts_named(session, namespace, name))
    models = list(
        dict.fromkeys([*(each["model"] for each in artifacts), *by_model.models_named(session, namespace, name)])
    )
    for each in artifacts:
        yield _entry(name, each["key"], LOST if each["lost"] else AVAILABLE, each["id"])
    if sees_jobs:
        for each in plain(tracking.latest_of_models(session, namespace, models, caller.owner)):
            yield _entry(name, each["key"], each["state"], each["id"])
    for each in plain(by_model.misses_of(session, namespace, models)):
        yield _entry(name, each["request"]["key"], MISSING, each["id"])


def _entry(name: str, key: Mapping[str, Any], state: str, id: str) -> dict[str, Any]:
    precision = str(key["precision"]) + (", calibrated" if key["calibration"] else "")
    # A key of the ref target has no arch and no rocm.
    target = (key.get("arch") or key["kind"], key.get("rocm") or "", key["migraphx"])
    model = str(key["model"])
    return {
        **{"name": name, "model": model, "precision": precision, "target": target},
        **{"shape": shape_of(key["inputs"]), "state": state, "id": id},
    }


def shape_of(inputs: Mapping[str, list[Any]]) -> str:
    """Return what tells shapes apart: the batch size where all inputs begin with it, else all dims."""
    shapes = {name: [dim_from_json(dim, name) for dim in dims] for name, dims in inputs.items()}
    batches = {show_dims(tuple(dims[:1])) for dims in shapes.values()}
    if len(batches) == 1 and batches != {""}:
        return batches.pop()
    return " ".join(show_dims(tuple(dims)) for dims in shapes.values()) or "no input"


def _matches(entry: Mapping[str, Any], filters: MatrixFilters) -> bool:
    arch, rocm, _ = entry["target"]
    wanted = ((filters.arch, arch), (filters.rocm, rocm), (filters.state, entry["state"]))
    return all(value is None or value.partition(":")[0] == has for value, has in wanted)


def _rows(entries: Iterable[Mapping[str, Any]], targets: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[tuple[str, str, str], dict[str, Mapping[str, Any]]]] = {}
    for each in entries:
        cells = rows.setdefault((each["name"], each["model"], each["precision"]), {})
        shapes = cells.setdefault(each["target"], {})
        known = shapes.get(each["shape"])
        if known is None or STATES.index(each["state"]) < STATES.index(known["state"]):
            shapes[each["shape"]] = each
    return [
        {
            **{"name": name, "model": model, "precision": precision},
            "cells": [
                [
                    {"shape": shape, "state": each["state"], "id": each["id"]}
                    for shape, each in sorted(cells.get(target, {}).items(), key=lambda pair: _order(pair[0]))
                ]
                for target in targets
            ],
        }
        for (name, model, precision), cells in rows.items()
    ]


def _order(shape: str) -> tuple[int, str]:
    digits = shape.partition(".")[0].partition(",")[0]
    return (int(digits), shape) if digits.isdigit() else (1 << 60, shape)
