"""What this user requires of the programs of a registry: that it signed them, with a key that this user trusts.

    $XDG_CONFIG_HOME/mxr/trust.json    {"<URL>": {"registry", "origin", "keys": {"<id>": {"public_key", "state", ...}}}}

`mxr trust add` writes it, with the key whose fingerprint was compared. Further keys of the registry are taken where one
of these endorses them. A key that is known to be revoked stays so, whatever a registry says later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mxr.artifact.records import Artifact
from mxr.configuration.config_file import UntrustedFileError, read_config
from mxr.errors import (
    Json,
    MxrError,
    OtherRecordError,
    RevokedKeyError,
    UnsignedError,
    UntrustedError,
    UsageError,
)
from mxr.util import codec, disk
from mxr.util.codec import Timestamp
from mxr.util.frozen import dataclass

from . import endorsement
from .envelope import Envelope
from .keys import PublicKey
from .statement import BUILT as BUILT_KIND
from .statement import PAYLOAD_TYPE, Accepted, Built

FILE = "trust.json"
ANY, BUILT, SIGNED = ORIGINS = ("any", "built", "worker")
"""Which programs are taken: each; BUILT: what a worker of the registry compiled, as the registry says; SIGNED: only
what the worker signed, too, with a key of its own."""

CLOCKS = 86_400.0
"""Seconds by which the clock of a worker may be wrong."""

OF_REGISTRY, OF_WORKER = ROLES = ("registry", "worker")
"""What a key signs: what the registry says; or what a worker says of the programs that it builds, and nothing else."""

ACTIVE, RETIRED, REVOKED = KEY_STATES = ("active", "retired", "revoked")
"""RETIRED: signs nothing new, and what it signed before stays valid. REVOKED: nothing that it signed is valid."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key of a registry. `ended_at`: since when it is retired or revoked. `role`: what it signs."""

    public_key: str
    state: str = ACTIVE
    ended_at: Timestamp | None = None
    role: str = OF_REGISTRY

    def __post_init__(self) -> None:
        if self.state not in KEY_STATES:
            raise codec.refuse("state", f"one of {', '.join(KEY_STATES)}", self.state)
        if self.role not in ROLES:
            raise codec.refuse("role", f"one of {', '.join(ROLES)}", self.role)


@dataclass(frozen=True, slots=True)
class OfferedKey:
    """A key as a registry tells it. `endorsement`: the word of another key for it."""

    id: str
    known: KnownKey
    endorsement: Envelope | None


@dataclass(frozen=True, slots=True)
class TrustRule:
    """What is required of one registry. `registry`: its id. `origin`: a word of ORIGINS."""

    registry: str
    keys: Mapping[str, KnownKey]
    origin: str = ANY

    def __post_init__(self) -> None:
        if self.origin not in ORIGINS:
            raise codec.refuse("origin", f"one of {', '.join(ORIGINS)}", self.origin)

    def prove(self, namespace: str, artifact: Artifact, envelopes: Iterable[Envelope]) -> None:
        """Check that a trusted key signed that the registry accepted exactly this artifact, and a worker if required.

        One record that proves it is enough. Raises `UnsignedError` without any, else the `UntrustedError` of the first
        one that does not.
        """
        records = tuple(envelopes)
        self._prove(artifact, [each for each in records if not _is_built(each)], partial(self._accepted, namespace))
        if self.origin == SIGNED:
            self._prove(artifact, [each for each in records if _is_built(each)], self._built, "of a worker ")

    def _prove(
        self, artifact: Artifact, records: Iterable[Envelope], check: Callable[[Artifact, Envelope], None], by: str = ""
    ) -> None:
        first: MxrError | None = None
        for each in records:
            try:
                check(artifact, each)
            except MxrError as problem:
                first = first or problem
            else:
                return
        if first is None:
            raise UnsignedError(f"There is no signed record {by}of artifact {artifact.id[:12]}.")
        if isinstance(first, UntrustedError):
            raise first
        raise OtherRecordError(f"The record {by}of artifact {artifact.id[:12]} is none: {first.message}")

    def verified(self, payload_type: str, envelope: Envelope) -> Json:
        """Return a document that a key of the registry signed. Raises `UntrustedError`."""
        return self._verified(payload_type, envelope, OF_REGISTRY)[0]

    def _verified(self, payload_type: str, envelope: Envelope, role: str) -> tuple[Json, frozenset[str]]:
        keys = {id: key for id, key in self.keys.items() if key.role == role}
        revoked = {id for id, key in keys.items() if key.state == REVOKED}
        if ended := revoked & {each.keyid for each in envelope.signatures}:
            raise RevokedKeyError(f"The key {min(ended)[:12]} that signed it was revoked.")
        counted = {id: PublicKey(key.public_key) for id, key in keys.items() if id not in revoked}
        return envelope.verify(payload_type, counted)

    def _built(self, artifact: Artifact, envelope: Envelope) -> None:
        document, signers = self._verified(PAYLOAD_TYPE, envelope, OF_WORKER)
        said = Built.read(document)
        assert artifact.manifest is not None
        said.refuse_other(artifact.id, artifact.key, artifact.manifest, artifact.attributes)
        if said.registry != self.registry:
            raise OtherRecordError(f"The worker built artifact {artifact.id[:12]} for another registry.")
        # The registry takes nothing from a key that has ended, by its own clock; this one is the worker's.
        self._refuse_later(artifact, signers, Timestamp(said.built_at - CLOCKS))

    def _accepted(self, namespace: str, artifact: Artifact, envelope: Envelope) -> None:
        document, signers = self._verified(PAYLOAD_TYPE, envelope, OF_REGISTRY)
        said = Accepted.read(document)
        said.refuse_other(artifact)
        if (said.registry, said.namespace) != (self.registry, namespace):
            raise OtherRecordError(
                f"The record of artifact {artifact.id[:12]} is of namespace {said.namespace} of registry "
                f"{said.registry}, and not of {namespace} of {self.registry}."
            )
        if self.origin != ANY and said.origin != BUILT:
            raise OtherRecordError(
                f"Artifact {artifact.id[:12]} was {said.origin}, and this host takes only what a worker of the "
                "registry built.",
                hint="Have a worker compile it, or change what is required: `mxr trust add`.",
            )
        self._refuse_later(artifact, signers, said.accepted_at)

    def _refuse_later(self, artifact: Artifact, signers: Iterable[str], moment: Timestamp) -> None:
        for id in signers:
            ended = self.keys[id].ended_at
            if ended is not None and moment > ended:
                raise RevokedKeyError(f"The key {id[:12]} signed artifact {artifact.id[:12]} after it was retired.")

    def listed(self, keys: Mapping[str, KnownKey]) -> TrustRule:
        """Return the rule with the keys that a verified recall list names, and with what has ended."""
        found = self._ended(keys)
        for id, key in keys.items():
            if id not in found and key.state != REVOKED and PublicKey(key.public_key).id == id:
                found[id] = key
        return replace(self, keys=found)

    def _ended(self, told: Mapping[str, KnownKey]) -> dict[str, KnownKey]:
        """The keys of the rule; what is told to have ended since has. Nothing begins again."""
        found = dict(self.keys)
        for id in told.keys() & found.keys():
            if KEY_STATES.index(told[id].state) > KEY_STATES.index(found[id].state):
                found[id] = replace(told[id], public_key=found[id].public_key, role=found[id].role)
        return found

    def follow(self, offered: Iterable[OfferedKey]) -> TrustRule:
        """Return the rule with the keys that its own keys endorse, one after the other, and with what has ended."""
        rest = {each.id: each for each in offered}
        found = self._ended({id: each.known for id, each in rest.items()})
        while True:
            of_registry = {id: key for id, key in found.items() if key.role == OF_REGISTRY}
            by = {id: PublicKey(key.public_key) for id, key in of_registry.items() if key.state != REVOKED}
            fresh = {id: each.known for id, each in rest.items() if id not in found and self._is_endorsed(each, by)}
            if not fresh:
                return replace(self, keys=found)
            found |= fresh

    def _is_endorsed(self, offered: OfferedKey, by: Mapping[str, PublicKey]) -> bool:
        try:
            key = PublicKey(offered.known.public_key)
            if offered.endorsement is None or key.id != offered.id:
                return False
            endorsement.check(offered.endorsement, key, self.registry, by, offered.known.role)
        except MxrError:
            return False
        return True


def _is_built(envelope: Envelope) -> bool:
    """Whether an envelope says that it is of a worker. Nothing is believed of it: each kind has its own keys."""
    try:
        return envelope.unverified().get("predicateType") == BUILT_KIND
    except MxrError:
        return False


def read_rules(config_dir: Path | None) -> dict[str, TrustRule]:
    """Return what is required, by the URL of the registry.

    Raises `UsageError` for a file that is none, or that others can write: nothing is fetched then.
    """
    if config_dir is None:
        return {}
    path = config_dir / FILE
    try:
        file = read_config(path)
    except UntrustedFileError as reason:
        raise UsageError(f"{path} is not used: {reason}.", hint="Only this user and root may write it.") from None
    return codec.decode(dict[str, TrustRule], codec.parse(file.text, str(path)), FILE) if file else {}


def write_rules(config_dir: Path | None, rules: Mapping[str, TrustRule]) -> Path:
    """Replace what is required, and return the file. Raises `MxrError`, also where this user has no folder for it."""
    if config_dir is None:
        raise UsageError("This user has no home folder.", hint="Set HOME or XDG_CONFIG_HOME.")
    with disk.faults(config_dir):
        config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    document: Json | Any = codec.encode(dict(rules))
    disk.write_whole(config_dir / FILE, codec.canonical(document).encode() + b"\n", mode=0o600)
    return config_dir / FILE
