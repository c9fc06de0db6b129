"""`mxr history`: who did what, from the registry's trail."""

from __future__ import annotations

from itertools import islice

import click

from mxr.protocol.artifacts import message_document
from mxr.protocol.events import Event
from mxr.util.codec import canonical
from mxr_cli.help import ARTIFACTS, command, completes
from mxr_cli.options import FOLLOW_LINKS, Session, common
from mxr_cli.output import format_time, print_json, print_table
from mxr_cli.rows import model_filter


@command()
@click.argument("subject", metavar="[WHAT]", required=False, shell_complete=completes(ARTIFACTS))
@click.option("--kind", metavar="KIND", help="Only events of this kind, such as artifact.promote.")
@click.option("--by", "principal", metavar="NAME", help="Only what this principal did.")
@click.option(
    "--limit", type=click.IntRange(1, 5000), metavar="N", default=50, show_default=True, help="List at most N events."
)
@FOLLOW_LINKS
@common
def history(session: Session, subject: str | None, limit: int, *, follow_links: bool, **filters: str | None) -> None:
    """List who did what, newest first: publications, promotions, removals, locks; for administrators also tokens,
    namespaces and maintenance, and the addresses.

    WHAT is an ONNX file or the identity of a model (sha256:...), or how the id of an artifact or a token or the name of
    a lock begins.
    """
    if subject is not None:
        found = model_filter(session, subject, follow_links=follow_links)
        filters |= {"model": found["model"]} if "model" in found else {"subject": subject}
    events = list(islice(session.client().events(**filters), limit))
    if session.as_json:
        print_json({"events": [message_document(each) for each in events]})
        return
    print_table([_cells(each) for each in events], ("WHEN", "WHAT", "OF", "BY", "FROM", "DETAIL"))


def _cells(event: Event) -> tuple[str, ...]:
    detail = {name: value for name, value in (event.detail or {}).items() if value not in (None, False, [])}
    shown = ", ".join(
        f"{name} {value if isinstance(value, str) else canonical(value)}" for name, value in detail.items()
    )
    of = event.subject[:12] if event.kind.startswith("artifact.") else event.subject
    return format_time(event.at), event.kind, of, event.principal, event.address or "", shown[:80]
