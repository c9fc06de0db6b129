"""`mxr plan --from ... --to ...`: what an upgrade of the toolchain would cost, as words or as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mxr.errors import MxrError, Usage

from .compiling import duration
from .options import Session
from .output import document, key_cells, note, say, table

if TYPE_CHECKING:
    from mxr.precompilation.upgrade_plan import Rebuild

MOST_SHOWN = 50


def show_upgrade(session: Session, before: str, after: str, days: int, factor: float, ask: bool) -> None:
    """Plans an upgrade; with `ask` queues what it needs. Raises `NoSuchModel` where models have to be brought first."""
    from mxr.precompilation import upgrade_plan

    old, new = upgrade_plan.versions(before), upgrade_plan.versions(after)
    if factor < 1:
        raise Usage(f"--grown {factor:g}: a compile that grew takes at least 1 times as long.", hint="Give 1.5, say.")
    client = session.client()
    rebuilds = upgrade_plan.plan(client, old, new, days)
    found = upgrade_plan.document(rebuilds, old, new, days, factor)
    if not session.as_json:
        say(f"In use in the last {days} days on {old}, and what {new} needs:")
        _show(rebuilds, factor)
    lacking: list[MxrError] = []
    jobs: dict[str, str] = {}
    for each, job in upgrade_plan.ask(client, rebuilds) if ask else ():
        if isinstance(job, MxrError):
            lacking.append(job)
        else:
            jobs[each.request.key.digest] = job.id
    if session.as_json:
        document(found | {"queued": jobs})
    elif ask:
        say(f"Queued {len(jobs)}, behind what anybody waits for. `mxr jobs` shows them.")
    if lacking:
        raise type(lacking[0])(
            f"{len(lacking)} of these models are no longer in the registry as files: {lacking[0].message}",
            hint="Precompile them from their ONNX files: `mxr precompile` uploads what is missing.",
        )


def _show(rebuilds: Sequence[Rebuild], factor: float) -> None:
    from mxr.precompilation import upgrade_plan

    rows = [_row(each) for each in rebuilds[:MOST_SHOWN]]
    if rows:
        table(rows, ("USES", "MODEL", "TARGET", "INPUTS", "PRECISION", "STATE", "COMPILE TIME"))
    if len(rebuilds) > MOST_SHOWN:
        note(f"mxr: and {len(rebuilds) - MOST_SHOWN} more; --json has all of them")
    for each in rebuilds:
        if each.grew(factor) and each.took and each.takes:
            note(
                f"mxr: warning: {each.request.key.model} for {each.request.key.arch or 'ref'} compiles "
                f"{each.takes / each.took:.1f} times as long as before ({duration(each.takes)} after "
                f"{duration(each.took)})"
            )
    sums = upgrade_plan.summary(rebuilds)
    todo = sums[upgrade_plan.COMPILE] + sums[upgrade_plan.QUEUED] + sums[upgrade_plan.NOBODY]
    more = f", and {sums['unknown']} without an estimate" if sums["unknown"] else ""
    cost = f"about {duration(sums['seconds'])} of compiling{more}" if sums["seconds"] else more.removeprefix(", and ")
    say(f"{len(rebuilds)} in use, {sums[upgrade_plan.THERE]} there already, {todo} to compile: {cost or 'nothing'}.")
    if sums[upgrade_plan.NOBODY]:
        note(f"mxr: no live worker or declared pool can compile {sums[upgrade_plan.NOBODY]} of them; `mxr workers`")


def _row(each: Rebuild) -> tuple[str, ...]:
    key = each.request.key
    took = each.takes if each.takes is not None else each.estimate
    words = duration(took) if took is not None else "not known"
    target, _, inputs, precision = key_cells(key)
    return (str(each.uses), key.model, target, inputs, precision, each.state, words)
