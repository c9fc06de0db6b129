"""`mxr misses`: the requests for which the registry had no program."""

from __future__ import annotations

import re
from itertools import islice

import click

from mxr.artifact.partial import PartialRequest
from mxr.artifact.records import REASONS
from mxr.errors import MxrError
from mxr.protocol.artifacts import RecordedMiss, message_document
from mxr_cli.help import MODELS, command, completes
from mxr_cli.options import FOLLOW_LINKS, Session, common
from mxr_cli.output import format_time, print_json, print_table
from mxr_cli.rows import model_cells, model_filter

HOURS = {"h": 1, "d": 24}


def _hours(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,4})([hd])", text)
    if found is None:
        raise click.BadParameter("Give hours or days, such as 24h or 7d.")
    return int(found[1]) * HOURS[found[2]]


@command()
@click.argument("model", metavar="[MODEL]", required=False, shell_complete=completes(MODELS))
@click.option("--arch", metavar="ARCH", help="Only requests for this arch.")
@click.option("--why", "reason", type=click.Choice(REASONS), help="Only what was missed for this reason.")
@click.option("--by", metavar="NAME", help="Only what this host, or this principal, asked for.")
@click.option("--since", "hours", metavar="TIME", callback=_hours, help="Asked in this time: 24h, 7d.")
@click.option(
    "--limit", type=click.IntRange(1, 5000), metavar="N", default=50, show_default=True, help="List at most N misses."
)
@FOLLOW_LINKS
@common
def misses(
    session: Session, model: str | None, limit: int, *, follow_links: bool, **filters: str | float | None
) -> None:
    """List what was requested and not found, latest first: how often, by how many hosts, and why.

    MODEL is an ONNX file, the identity of a model (sha256:...), or how its name begins. A miss stays in the list when
    its program is published later; `mxr plan` shows what a matrix still lacks. --json tells who asked, to
    administrators and to the principal itself.
    """
    if model is not None:
        filters |= model_filter(session, model, follow_links=follow_links)
    found = list(islice(session.client().misses(**filters), limit))
    if session.as_json:
        print_json({"misses": [message_document(each) for each in found]})
        return
    requests = [_request(each) for each in found]
    names = model_cells(
        [(each.model_name, request.model if request else "") for each, request in zip(found, requests, strict=True)]
    )
    rows = [
        (str(each.count), str(each.hosts), format_time(each.last_at), each.reason or "", name or each.digest[:12])
        + (request.words if request else ("", "", "", ""))
        for each, request, name in zip(found, requests, names, strict=True)
    ]
    print_table(rows, ("COUNT", "HOSTS", "LAST", "WHY", "MODEL", "TARGET", "TOOLCHAIN", "INPUTS", "PRECISION"))


def _request(miss: RecordedMiss) -> PartialRequest | None:
    """The request; None where this version cannot read it."""
    try:
        return PartialRequest.read(miss.request)
    except MxrError:
        return None
