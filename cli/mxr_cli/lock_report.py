"""The findings of `mxr lock --check` and `mxr verify`, printed."""

from __future__ import annotations

from mxr.plans import drift

from .options import Session
from .output import note, print_json


def report_findings(session: Session, findings: list[drift.LockFinding]) -> None:
    """Print a line for each entry that differs from the lock. With --json, print all entries if none differs."""
    different = [each for each in findings if each.state != drift.SAME]
    if session.as_json:
        if not different:
            print_json({"ok": True, "entries": [each.to_json() for each in findings]})
        return
    for each in different:
        first = f", {each.first[:12]}" if each.first else ""
        path = f" ({each.path})" if each.path else ""
        note(f"mxr: {each.entry.model} {each.entry.id[:12]}: {drift.WORDS[each.state]}{first}{path}")
