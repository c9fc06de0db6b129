"""`mxr workers`: the workers and declared worker pools of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxr.artifact.target import GfxArch, userland
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_time, print_json, print_table

if TYPE_CHECKING:
    from mxr.host_facts import HostTarget
    from mxr.protocol.jobs import WorkerCapabilities


@command()
@common
def workers(session: Session) -> None:
    """List the workers with the targets that each can compile for, and the declared pools.

    WALLS tells whether a hostile model is kept from the worker's files, network and processes: `mxr-worker host` has
    what is open. A worker with an open wall takes only the jobs of the principals that are named there.

    A declared pool counts even while it is scaled to zero workers.
    """
    client = session.client()
    listed, pools = client.workers(), client.pools()
    if session.as_json:
        from mxr.protocol.artifacts import message_document

        print_json(
            {
                "workers": [message_document(each) for each in listed],
                "pools": [message_document(pool) for pool in pools],
            }
        )
        return
    print_table(
        [
            (
                *(each.name, each.state, *_capabilities(each.can), _walls(each.can)),
                *((each.job or "")[:12], format_time(each.seen_at)),
            )
            for each in listed
        ],
        ("WORKER", "STATE", "TARGETS", "TOOLCHAIN", "WALLS", "JOB", "SEEN"),
    )
    if pools:
        echo()
        rows = [(pool.name, *_capabilities(pool.can), str(pool.queued), str(pool.running)) for pool in pools]
        print_table(rows, ("POOL", "TARGETS", "TOOLCHAIN", "QUEUED", "RUNNING"))


WALLS = {True: "hold", False: "open", None: ""}


def _walls(can: WorkerCapabilities) -> str:
    found = WALLS[can.walls]
    return found if can.trusts is None else f"{found}, only for {', '.join(can.trusts) or 'itself'}"


def _capabilities(can: WorkerCapabilities) -> tuple[str, str]:
    """The table cells of what a worker can compile for: targets, toolchain."""
    toolchain = f"migraphx {can.toolchain.migraphx or '?'}"
    toolchain += f" {userland(can.toolchain.vendor).lower()} {can.toolchain.rocm}" if can.toolchain.rocm else ""
    toolchain += f" onnxruntime {can.ort.version}" if can.ort else ""
    across = f"cross {', '.join(can.cross_for) or 'each AMD arch'}" if can.cross else ""
    return ", ".join(filter(None, [*dict.fromkeys(map(_target, can.targets)), across])), toolchain


def _target(target: HostTarget) -> str:
    if target.kind != "gpu":
        return target.kind
    return str(GfxArch.of(target.arch, target)) + (f"/{target.num_cu}" if target.num_cu else "")
