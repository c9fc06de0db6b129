"""What proves the programs of a cache to who requires signatures: the signed records beside them.

    <partition>/statements/<id>.json    {"envelopes": [...]}: what the registry, or a bundle, says that it signed

The records may come from anywhere: they count only where a key of the rule signed them. What was proven once is in
`proven`. `Cache.require_proof` is the one place that refuses; it needs no network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from mxr.artifact.records import Artifact
from mxr.errors import (
    MxrError,
    OtherRecordError,
    TemporaryError,
    UnknownKeyError,
    UnreachableError,
    UnsignedError,
    UntrustedError,
)
from mxr.trust import rules
from mxr.trust.envelope import Envelope
from mxr.trust.recall_list import PAYLOAD_TYPE, SignedRecalls
from mxr.trust.rules import OfferedKey, TrustRule
from mxr.util import codec
from mxr.util.codec import time_text

from .partition import OWN, Partition, list_name
from .proven import Proven

if TYPE_CHECKING:
    from mxr.client.registry import Client

    from .store import Cache


RENEWED = 10 * 86_400.0
"""Seconds before the end of a recall list from which on the registry is asked for a newer one."""


class Proofs:
    """The proofs of one cache, for the rule of its registry."""

    def __init__(self, cache: Cache, proven: Proven) -> None:
        self._cache, self._proven = cache, proven

    @cached_property
    def rule(self) -> TrustRule:
        """What is required of this registry. Raises `UsageError`."""
        return codec.decode(TrustRule, self._proven.rule, rules.FILE)

    def prove(self, artifact: Artifact) -> None:
        """Raise `UntrustedError` if no record here proves this artifact."""
        try:
            self.rule.prove(self._cache.policy.namespace, artifact, self._cache.statements(artifact.id))
        except UntrustedError as problem:
            problem.context.setdefault("id", artifact.id)
            raise
        self._proven.remember(artifact)

    def collect(self, artifact: Artifact, connect: Callable[[], Client] | None) -> None:
        """Ask the registry for what it signed of an artifact, where that is required and not known here.

        Follows its keys, as far as the known ones endorse them. A registry that is away changes nothing.
        """
        if connect is None or self._is_proven(artifact):
            return
        with suppress(UnreachableError, TemporaryError):
            client = connect()
            self.store(artifact.id, [each.envelope for each in client.statements(artifact.id).items])
            try:
                self.prove(artifact)
            except UnknownKeyError:
                self.follow(client)
            except UntrustedError:
                return

    def import_recalls(self, envelope: Envelope) -> None:
        """Take the recall list of a bundle, unless a later one is here. Raises `UntrustedError`."""
        found = self._read(envelope)
        known = self._proven.latest_list()
        if (found.sequence, found.expires_at) > (known["sequence"], known["expires_at"]):
            self.take_list(found, self._cache.imported, list_name(found.registry, found.namespace))

    def take_recalls(self, client: Client) -> None:
        """Take the recall list of the registry, if it changed, or if the one that is here ends soon.

        Raises `UntrustedError` for one that is not signed as required, is older than the one that is here, or has
        ended; the one that is here stays. Does nothing if the registry goes away meanwhile.
        """
        partition, told = self._cache.partition, client.recalls
        if partition is None or told is None:
            return
        known = partition.recall_list(OWN)
        if told == known["sequence"] == 0:
            return
        taken = known.get("rule") == self._proven.digest and known["expires_at"] > time.time() + RENEWED
        if told == known["sequence"] and taken:
            return
        try:
            envelope = client.recall_list().envelope
            found = self._verified(envelope, client)
        except (UnreachableError, TemporaryError):
            return
        self.take_list(found, partition, OWN)

    def take_list(self, found: SignedRecalls, partition: Partition, name: str) -> None:
        """Keep a verified list, unless a later one is here. Raises `UntrustedError` for one that is older, or ended."""
        known = partition.recall_list(name)
        if found.sequence < known["sequence"]:
            raise UntrustedError(
                f"The registry shows a recall list (number {found.sequence}) that is older than the one that this host "
                f"has seen (number {known['sequence']}).",
                hint="Its database may be an older one. `mxr yank` or `mxr quarantine` there makes a newer list; check "
                "first which recalls it lacks (`mxr ls --state quarantined`).",
            )
        if found.expires_at < time.time():
            raise UntrustedError(
                f"The recall list that the registry shows ended {time_text(found.expires_at)}.",
                hint="Somebody may be in the way, or the clock of this host is wrong.",
            )
        self._replace(self.rule.listed(found.keys))
        with suppress(MxrError):
            rule = self._proven.digest
            partition.store_recall_list(name, found.sequence, found.expires_at, found.items, rule)

    def _verified(self, envelope: Envelope | None, client: Client) -> SignedRecalls:
        if envelope is None:
            raise UnsignedError(
                "The recall list of the registry is not signed.", hint="It may have no key: docs/trust.md."
            )
        try:
            return self._read(envelope)
        except UnknownKeyError:
            self.follow(client)
            return self._read(envelope)

    def _read(self, envelope: Envelope) -> SignedRecalls:
        found = SignedRecalls.read(self.rule.verified(PAYLOAD_TYPE, envelope))
        if (found.registry, found.namespace) != (self.rule.registry, self._cache.policy.namespace):
            raise OtherRecordError("The recall list is of another registry or namespace.")
        return found

    def _replace(self, found: TrustRule) -> None:
        policy = self._cache.policy
        if found == self.rule:
            return
        given = rules.read_rules(policy.config)
        try:
            rules.write_rules(policy.config, given | {policy.url: found})
        except MxrError:
            # A file of root, or of an image: this user keeps what it learned beside what it has proven.
            self._proven.learn(codec.encode(given[policy.url]), codec.encode(found))
        self.__dict__["rule"], self._proven.__dict__["rule"] = found, codec.encode(found)

    def follow(self, client: Client) -> None:
        """Take the further keys of the registry that the known ones endorse, and what it says has ended.

        Those before the known ones are in the recall list, which one of the known ones signed.
        """
        offered = [OfferedKey(each.id, each.known, each.endorsement) for each in client.keys().items]
        self._replace(self.rule.follow(offered))
        with suppress(UntrustedError):
            envelope = client.recall_list().envelope
            if envelope is not None:
                self._replace(self.rule.listed(self._read(envelope).keys))

    def store(self, identity: str, envelopes: Sequence[Envelope]) -> None:
        """Keep what the registry signed of an artifact. Does nothing if the cache is not writable."""
        partition = self._cache.partition
        with suppress(MxrError):
            if partition is not None and envelopes:
                partition.store_statements(identity, envelopes)

    def _is_proven(self, artifact: Artifact) -> bool:
        try:
            self.prove(artifact)
        except UntrustedError:
            return False
        return True
