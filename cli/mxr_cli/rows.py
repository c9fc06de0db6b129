"""Rows that several commands print: models in lists, and the findings of a lock.

Names of models are labels: models may share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.key import MODEL_PREFIX
from mxr_cli.options import Session
from mxr_cli.output import note, print_json

if TYPE_CHECKING:
    from mxr.plans.drift import LockFinding

SHORT = len(MODEL_PREFIX) + 12
"""Characters of a short identity: enough for every command that takes an identity."""


def model_filter(session: Session, text: str, *, follow_links: bool) -> dict[str, str]:
    """Return the filter of a list for an ONNX file, an identity, or the beginning of a name.

    What looks like a path, or is a file, is read as one. Raises `DamagedError`, `NoSuchModelError`, `UsageError`.
    """
    from mxr.request.model import complete_identity, find_model, is_identity

    if is_identity(text):
        return {"model": complete_identity(text, session.cache(), session.client)}
    if "/" in text or Path(text).exists():
        return {"model": find_model(text, session.cache(), session.client, follow_links=follow_links).identity}
    return {"name": text}


def model_cells(models: Sequence[tuple[str | None, str]]) -> list[str]:
    """Return a table cell for each model, given by name and identity.

    Where models of this table share a name, or have none, the cell has the first digits of the identity.
    """
    identities: dict[str | None, set[str]] = {}
    for name, identity in models:
        identities.setdefault(name, set()).add(identity)
    return [_cell(name, identity, shared=len(identities[name]) > 1) for name, identity in models]


def _cell(name: str | None, identity: str, *, shared: bool) -> str:
    if name is None:
        return identity[:SHORT]
    return f"{name} {identity[:SHORT]}" if shared else name


def report_findings(session: Session, findings: list[LockFinding]) -> None:
    """Print a line for each entry that differs from the lock. With --json, print all entries if none differs."""
    from mxr.plans import drift

    different = [finding for finding in findings if finding.state != drift.SAME]
    if session.as_json:
        if not different:
            print_json({"ok": True, "entries": [finding.to_json() for finding in findings]})
        return
    for each in different:
        first = f", {each.first[:12]}" if each.first else ""
        path = f" ({each.path})" if each.path else ""
        note(f"mxr: {each.entry.model} {each.entry.id[:12]}: {drift.WORDS[each.state]}{first}{path}")
