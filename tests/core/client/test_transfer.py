"""What moves between a host and the registry: here, who sends what, and what is said once all of it has arrived."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from mxr.artifact.manifest import Blob
from mxr.client import transfer
from mxr.client.retry import PUBLISH
from mxr.errors import NoSuchBlobError, TemporaryError
from mxr.protocol.artifacts import Missing


class Swept:
    """A registry that sweeps what was sent, the first few times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.sent = 0

    def send(self) -> None:
        self.sent += 1

    def say(self) -> int:
        if self.sent <= self.times:
            raise NoSuchBlobError("swept")
        return self.sent


@pytest.mark.parametrize("times", [0, 1, 2])
def test_what_was_swept_is_sent_again(times: int) -> None:
    registry = Swept(times)
    assert transfer.upload_and_publish(registry.send, registry.say) == times + 1 == registry.sent


def test_a_registry_that_sweeps_everything_is_asked_later() -> None:
    registry = Swept(100)
    with pytest.raises(TemporaryError, match="removes") as caught:
        transfer.upload_and_publish(registry.send, registry.say)
    assert (registry.sent, caught.value.exit) == (PUBLISH.attempts, 75)


class Beside:
    """A registry to which another host sends everything right after it was first asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.came: list[str] = []

    def missing(self, blobs: Collection[Blob]) -> Missing:
        self.asked += 1
        return Missing(tuple(blob.sha256 for blob in blobs) if self.asked == 1 else ())

    def put_blob(self, blob: Blob, data: Iterable[bytes]) -> None:
        assert sum(map(len, data)) == blob.size
        self.came.append(blob.sha256)


def test_what_another_host_has_sent_meanwhile_is_not_sent_again_where_it_is_large() -> None:
    small, large = Blob("5" * 64, 10), Blob("a" * 64, transfer.LARGE)
    registry: Any = Beside()
    done: list[int] = []
    sent = transfer.send(registry, [small, large], lambda blob: iter([bytes(blob.size)]), done.append)
    assert (sent, registry.came) == (10, [small.sha256])
    assert sum(done) == 10 + transfer.LARGE, "who watches sees all of it arrive"
