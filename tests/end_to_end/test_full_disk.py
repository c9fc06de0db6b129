"""A full disk, on either side: exit 75, nothing half, and the same command works once there is room.

A limit on the size of a file stands in for the disk: it needs no rights, and stops a write in its middle too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .large_program import MIB, write_program
from .stack import Host, Registry

ASKED = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python")


def at_most(mib: int) -> tuple[str, ...]:
    """The command under which no file can grow beyond so much (`ulimit -f` counts 512 bytes)."""
    return ("sh", "-c", f'ulimit -f {mib * 2048} && exec "$@"', "sh")


def test_a_host_without_room(
    registry: Registry, mxr: Host, host: Callable[..., Host], model: Path, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "large.mxr", weights=2, size=2 * MIB, seed=21)
    mxr("push", program, "--model", model, "--for", "python")
    other = host("other")
    error = other("fetch", model, *ASKED, "--json", through=at_most(1), expect=75).error
    assert (error["code"], error["retry"]) == ("disk_full", True)
    assert str(other.cache) in error["detail"]
    assert (other.held(), other.leftovers()) == ([], [])
    other("fetch", model, *ASKED)

    final = tmp_path / "out" / "model.mxr"
    other("fetch", model, *ASKED, "-o", final, through=at_most(1), expect=75)
    assert not final.parent.exists()
    final.parent.mkdir()
    for words in (("-o", final), ("-o", f"{final.parent}/", "--for", "amdinfer")):
        other("fetch", model, *ASKED, *words, through=at_most(1), expect=75)
        assert not list(final.parent.iterdir()), "no record of what is not there"
    other("fetch", model, *ASKED, "-o", final)
    assert final.read_bytes() == program.read_bytes()


@pytest.mark.parametrize("stack", ["embedded"], indirect=True, scope="module")
def test_a_registry_without_room(
    own_registry: Callable[..., Registry], host: Callable[..., Host], model: Path, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "large.mxr", weights=2, size=4 * MIB, seed=22)
    small = own_registry(through=at_most(3))
    push = ("push", program, "--model", model, "--for", "python", "--json")
    error = host("publisher", small.url)(*push, expect=75).error
    assert (error["code"], error["retry"]) == ("disk_full", True)
    found = small.fsck()
    assert (found["artifacts"], [each for each in found["findings"] if each["kind"] == "temporary"]) == (0, [])
    small.stop()
    roomy = own_registry(like=small)
    published = host("publisher", roomy.url)(*push).json
    reply = roomy.ask("GET", f"/v1/artifacts/{published['id']}/files/model.mxr")
    assert reply.data == program.read_bytes()
