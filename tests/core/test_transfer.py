"""What moves between a host and the registry: here, what is said once all of it has arrived."""

from __future__ import annotations

import pytest

from mxr import transfer
from mxr.errors import NoSuchBlob, Temporary


class Swept:
    """A registry that sweeps what was sent, the first few times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.sent = 0

    def send(self) -> None:
        self.sent += 1

    def say(self) -> int:
        if self.sent <= self.times:
            raise NoSuchBlob("swept")
        return self.sent


@pytest.mark.parametrize("times", [0, 1, 2])
def test_what_was_swept_is_sent_again(times: int) -> None:
    registry = Swept(times)
    assert transfer.settle(registry.send, registry.say) == times + 1 == registry.sent


def test_a_registry_that_sweeps_everything_is_asked_later() -> None:
    registry = Swept(100)
    with pytest.raises(Temporary, match="removes") as caught:
        transfer.settle(registry.send, registry.say)
    assert (registry.sent, caught.value.exit) == (transfer.TRIES, 75)
