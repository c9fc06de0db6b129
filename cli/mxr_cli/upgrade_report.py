"""`mxr plan --from ... --to ...`: what a toolchain upgrade has to compile again, as text or as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mxr.display.text import counted
from mxr.errors import MxrError, UsageError

from .model_labels import model_cells
from .options import Session
from .output import echo, format_duration, key_cells, note, print_json, print_table

if TYPE_CHECKING:
    from mxr.plans.upgrade_plan import Rebuild

MAX_ROWS = 50
"""Rebuilds that are listed without --json."""


def plan_upgrade(session: Session, before: str, after: str, days: int, factor: float, queue: bool) -> None:
    """Print the plan of an upgrade; with `queue`, queue its compiles.

    Compiles that became slower by `factor` are flagged. Raises `NoSuchModelError` when the registry lacks the files of
    a model.
    """
    from mxr.plans import upgrade_plan

    old, new = upgrade_plan.versions(before), upgrade_plan.versions(after)
    if factor < 1:
        raise UsageError(f"--grown {factor:g} is less than 1.", hint="Give a factor such as 1.5.")
    client = session.client()
    rebuilds = upgrade_plan.plan(client, old, new, days)
    document = upgrade_plan.upgrade_document(rebuilds, old, new, days, factor)
    if not session.as_json:
        echo(f"Programs used on {old} in the last {days} days, and their state on {new}:")
        _print_plan(rebuilds, factor)
    errors: list[MxrError] = []
    jobs: dict[str, str] = {}
    for each, job in upgrade_plan.queue_compiles(client, rebuilds) if queue else ():
        if isinstance(job, MxrError):
            errors.append(job)
        else:
            jobs[each.request.key.digest] = job.id
    if session.as_json:
        print_json(document | {"queued": jobs})
    elif queue:
        echo(f"Queued {counted(len(jobs), 'compile')} at low priority. List them with `mxr jobs`.")
    if errors:
        raise type(errors[0])(
            f"The registry no longer has the files of {len(errors)} of these models: {errors[0].message}",
            hint="Precompile them from their ONNX files: `mxr precompile` uploads missing models.",
        )


def _print_plan(rebuilds: Sequence[Rebuild], factor: float) -> None:
    models = model_cells([(each.old.model_name, each.request.key.model) for each in rebuilds])
    rows = [_row(each, model) for each, model in zip(rebuilds[:MAX_ROWS], models, strict=False)]
    if rows:
        print_table(rows, ("USES", "MODEL", "TARGET", "INPUTS", "PRECISION", "STATE", "COMPILE TIME"))
    if len(rebuilds) > MAX_ROWS:
        note(f"mxr: and {len(rebuilds) - MAX_ROWS} more; --json lists all of them")
    for each, model in zip(rebuilds, models, strict=True):
        if each.grew(factor) and each.took and each.takes:
            note(
                f"mxr: warning: {model} for {each.request.key.arch or 'ref'} takes "
                f"{each.takes / each.took:.1f} times as long to compile as before ({format_duration(each.takes)}, was "
                f"{format_duration(each.took)})"
            )
    _print_summary(rebuilds)


def _print_summary(rebuilds: Sequence[Rebuild]) -> None:
    from mxr.plans import upgrade_plan

    sums = upgrade_plan.summary(rebuilds)
    missing = sums[upgrade_plan.COMPILE] + sums[upgrade_plan.QUEUED] + sums[upgrade_plan.NOBODY]
    parts = [f"about {format_duration(sums['seconds'])}"] if sums["seconds"] else []
    parts += [f"{sums['unknown']} without an estimate"] if sums["unknown"] else []
    cost = " and ".join(parts) or "nothing"
    echo(f"{len(rebuilds)} in use, {sums[upgrade_plan.AVAILABLE]} already available, {missing} to compile: {cost}.")
    if sums[upgrade_plan.NOBODY]:
        note(
            f"mxr: no live worker and no declared pool can compile {sums[upgrade_plan.NOBODY]} of them; "
            "see `mxr workers`"
        )


def _row(rebuild: Rebuild, model: str) -> tuple[str, ...]:
    key = rebuild.request.key
    seconds = rebuild.takes if rebuild.takes is not None else rebuild.estimate
    compile_time = format_duration(seconds) if seconds is not None else "unknown"
    target, _, inputs, precision = key_cells(key)
    return (str(rebuild.uses), model, target, inputs, precision, rebuild.state, compile_time)
