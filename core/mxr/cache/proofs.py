"""What proves the programs of a cache to who requires signatures: the signed records beside them.

    <partition>/statements/<id>.json    {"envelopes": [...]}: what the registry, or a bundle, says that it signed
    <state_dir>/proven/ab/<sha256>      that an artifact was proven under a rule; only this user can write it

The records may come from anywhere: they count only where a key of the rule signed them. `Proofs.require` is the one
place that refuses; it needs no network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from mxr.artifact.records import Artifact
from mxr.errors import MxrError, TemporaryError, UnknownKeyError, UnreachableError, UntrustedError
from mxr.trust import rules
from mxr.trust.envelope import Envelope
from mxr.trust.rules import KnownKey, OfferedKey, TrustRule
from mxr.util import codec

from .folder import CacheFolder

if TYPE_CHECKING:
    from mxr.client.registry import Client

    from .store import Cache


class Proofs:
    """The proofs of one cache, for the rule of its registry."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    @cached_property
    def rule(self) -> TrustRule | None:
        """What is required of this registry; None: nothing. Raises `UsageError`."""
        policy = self._cache.policy
        return rules.read_rules(policy.config).get(policy.url)

    def require(self, artifact: Artifact) -> None:
        """Raise `UntrustedError` if signatures are required, and no record here proves this artifact."""
        if self.rule is None or self._is_remembered(artifact):
            return
        try:
            self.rule.prove(self._cache.policy.namespace, artifact, self._cache.statements(artifact.id))
        except UntrustedError as problem:
            problem.context.setdefault("id", artifact.id)
            raise
        self._remember(artifact)

    def collect(self, artifact: Artifact, connect: Callable[[], Client] | None) -> None:
        """Ask the registry for what it signed of an artifact, where that is required and not known here.

        Follows its keys, as far as the known ones endorse them. A registry that is away changes nothing.
        """
        if self.rule is None or connect is None or self._is_proven(artifact):
            return
        with suppress(UnreachableError, TemporaryError):
            client = connect()
            self.store(artifact.id, [each.envelope for each in client.statements(artifact.id).items])
            try:
                self.require(artifact)
            except UnknownKeyError:
                self.follow(client)
            except UntrustedError:
                return

    def follow(self, client: Client) -> None:
        """Take the further keys of the registry that the known ones endorse, and what it says has ended."""
        if self.rule is None:
            return
        offered = [
            OfferedKey(each.id, KnownKey(each.public_key, each.state, each.ended_at), each.endorsement)
            for each in client.keys().items
        ]
        found = self.rule.follow(offered)
        if found != self.rule:
            policy = self._cache.policy
            with suppress(MxrError):
                rules.write_rules(policy.config, rules.read_rules(policy.config) | {policy.url: found})
            self.__dict__["rule"] = found

    def store(self, identity: str, envelopes: Sequence[Envelope]) -> None:
        """Keep what the registry signed of an artifact. Does nothing if the cache is not writable."""
        partition = self._cache.partition
        with suppress(MxrError):
            if partition is not None and envelopes:
                partition.store_statements(identity, envelopes)

    def _is_proven(self, artifact: Artifact) -> bool:
        try:
            self.require(artifact)
        except UntrustedError:
            return False
        return True

    @cached_property
    def _memory(self) -> CacheFolder | None:
        private = self._cache.policy.private
        return None if private is None else CacheFolder(private, "proven")

    def _name(self, artifact: Artifact) -> str:
        assert self.rule is not None
        facts = {"attributes": artifact.attributes, "origin": artifact.origin, "key": artifact.key}
        text = codec.canonical([self.rule.digest, self._cache.policy.namespace, artifact.id, codec.encode(facts)])
        name = sha256(text.encode()).hexdigest()
        return f"{name[:2]}/{name}"

    def _is_remembered(self, artifact: Artifact) -> bool:
        with suppress(MxrError):
            return self._memory is not None and self._memory.has_trusted_file(self._name(artifact))
        return False

    def _remember(self, artifact: Artifact) -> None:
        with suppress(MxrError):
            if self._memory is not None:
                self._memory.write(self._name(artifact), b"")
