"""What moves between a host and the registry: here, who sends what, and what is said once all of it has arrived."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from mxr.artifact.manifest import NO_CHAIN, Blob, File, next_chain
from mxr.client import transfer
from mxr.client.retry import RetryPolicy, transfer_policy
from mxr.display import progress
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
    assert (registry.sent, caught.value.exit) == (transfer.MAX_PUBLISH_ATTEMPTS, 75)


class Beside:
    """A registry to which another host sends everything right after it was first asked."""

    transfers: RetryPolicy = transfer_policy(15.0)

    def __init__(self) -> None:
        self.asked = 0
        # In one list: several threads send.
        self.puts: list[tuple[str, tuple[str, ...]]] = []

    @property
    def came(self) -> list[str]:
        return [name for name, _ in self.puts]

    @property
    def followed(self) -> list[tuple[str, ...]]:
        return [follows for _, follows in self.puts]

    def missing(self, blobs: Collection[Blob]) -> Missing:
        self.asked += 1
        return Missing(tuple(blob.sha256 for blob in blobs) if self.asked == 1 else ())

    def put_blob(self, blob: Blob, data: Iterable[bytes], *, follows: Sequence[str]) -> None:
        assert sum(map(len, data)) == blob.size
        self.puts.append((blob.sha256, tuple(follows)))


def test_what_another_host_has_sent_meanwhile_is_not_sent_again_where_it_is_large() -> None:
    small, large, last = Blob("5" * 64, 10), Blob("a" * 64, transfer.LARGE), Blob("c" * 64, 5)
    registry: Any = Beside()
    done: list[int] = []
    file = File("f", 15 + transfer.LARGE, "0" * 64, (small, large, last))
    with progress.shown_by(lambda *_: done.append):
        sent = transfer.send(registry, [file], lambda blob: iter([bytes(blob.size)]), "f")
    assert (sent, registry.came) == (15, [small.sha256, last.sha256])
    assert sum(done) == 15 + transfer.LARGE, "who watches sees all of it arrive"
    assert registry.followed == [(NO_CHAIN,), (next_chain(NO_CHAIN, small.sha256), large.sha256)]


def test_the_blobs_of_a_file_are_sent_in_order_and_each_once() -> None:
    blobs = [Blob(f"{number:064x}", 1000 * number + 1) for number in range(200)]
    first = File("a", sum(blob.size for blob in blobs), "0" * 64, tuple(blobs))
    second = File("b", 4002, "1" * 64, (blobs[2], blobs[2]))
    alone = File("c", 7, "f" * 64, (Blob("f" * 64, 7),))
    registry: Any = Beside()
    transfer.send(registry, [first, second, alone], lambda blob: iter([bytes(blob.size)]), "all")
    assert [name for name in registry.came if name != "f" * 64] == [blob.sha256 for blob in blobs]
    assert dict(zip(registry.came, registry.followed, strict=True))["f" * 64] == ()


def test_an_upload_moves_with_its_bytes_and_takes_back_what_is_sent_again() -> None:
    """Not by blobs: a program with one large weight would stand still."""

    class Cut(Beside):
        transfers = replace(transfer_policy(15.0), base=0.0)

        def put_blob(self, blob: Blob, data: Iterable[bytes], *, follows: Sequence[str]) -> None:
            chunks = iter(data)
            if not self.came:
                self.puts.append((blob.sha256, ()))
                next(chunks), next(chunks)
                raise TemporaryError("cut")
            super().put_blob(blob, chunks, follows=follows)

    done: list[int] = []
    file = File("f", 40, "a" * 64, (Blob("a" * 64, 40),))
    with progress.shown_by(lambda *_: done.append):
        transfer.send(cast(Any, Cut()), [file], lambda _: iter([bytes(10)] * 4), "f")
    assert done == [10, -10, 10, 10, 10, 10, 0]
