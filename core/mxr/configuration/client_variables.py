"""The environment variables of the client."""

from __future__ import annotations

import mxr.facts as facts

STATED = tuple(fact.name for fact in facts.FACTS if fact.has(facts.DEFAULT) and fact.kind != facts.SHAPES)
"""The facts of a request that a variable states."""

NAMES = (
    *("registry", "token", "token_file", "ca_file", "cache_dir", *STATED, "host_file", "timeout", "plaintext"),
    *("kserve_allow", "max_age", "max_stale", "cache_owners", "state_dir"),
)

VARIABLES = {name: f"MXR_{name.upper()}" for name in NAMES} | {"host_file": "MXR_HOST"}
"""The variable of each setting. The user's configuration file uses the names of the settings themselves."""
