"""The key with which a registry signs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mxr.configuration.schema import DAYS, setting

FILE = "signing.key"
"""The key of a registry with the embedded database, in its data directory. It is made with the registry."""


@dataclass(frozen=True, slots=True)
class SigningSettings:
    """What every publication is signed with."""

    key_file: Path | None = setting(
        None,
        "The file of the private key (Ed25519, PEM) with which the registry signs what it accepts. Registries on one "
        "database have the same key, or each its own. Without one, publications are refused (503).",
        example='"/etc/mxr/signing.key"',
        absent=f"`{FILE}` in the data directory, made there for the embedded database; else none",
    )
    recall_days: float = setting(
        30.0,
        "How long a signed recall list counts. A host that requires signatures must get a newer one within this time, "
        "by the network or with a bundle.",
        unit=DAYS,
        least=1,
        most=3650,
    )
