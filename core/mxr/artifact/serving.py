"""Which artifacts answer the requests of a namespace: its rule `serve`, and the origin of an artifact.

An artifact that a person or a lock names by its id is served whatever the rule is.
"""

from __future__ import annotations

BUILT, PUSHED = ORIGINS = ("built", "pushed")
"""BUILT: a worker finished its lease with it. PUSHED: somebody published it; the registry did not see the compile."""

ANY, BUILT_ONLY, PROMOTED_ONLY = SERVE_RULES = ("any", "built", "promoted")
"""ANY: every artifact. BUILT_ONLY: those that are built or promoted. PROMOTED_ONLY: those that are promoted."""

DESCRIPTIONS = {
    ANY: "every artifact",
    BUILT_ONLY: "only artifacts that a worker built or somebody promoted",
    PROMOTED_ONLY: "only promoted artifacts",
}
"""What a namespace with each rule serves, for messages."""

READER, WORKER, PUBLISHER = SOURCES = ("reader", "worker", "publisher")
"""Who states a fact of an artifact. READER: the registry read it from the file. WORKER: the worker that compiled the
program. PUBLISHER: whoever published it; nobody verified the fact."""


def allows(rule: str, origin: str, *, promoted: bool) -> bool:
    """Return whether an artifact answers the requests of a namespace with this rule. An unknown rule allows none."""
    return (promoted and rule in SERVE_RULES) or rule == ANY or (rule == BUILT_ONLY and origin == BUILT)


def rule_for_compiles(rule: str) -> str:
    """Return the rule for what makes a compile unnecessary: what a worker built is not built again for a promotion."""
    return BUILT_ONLY if rule == PROMOTED_ONLY else rule
