"""A partial request that no program fits names the command that compiles one, with a toolchain that has workers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from end_to_end.stack import Host, Registry

Hosts = Callable[..., Host]


def test_the_command_that_compiles_it(
    own_registry: Callable[..., Registry], host: Hosts, worker: Callable[..., Any], convnet: Path
) -> None:
    """A live worker's toolchain is in the command, which compiles the program."""
    registry = own_registry()
    mxr = host("asker", registry.url)
    worker("here", url=registry.url).ready()
    error = mxr("fetch", convnet, "--kind", "ref", "--json", expect=3).error
    command = error["hint"].split("`")[1]
    assert command == (
        f"mxr fetch {shlex.quote(str(convnet))} --kind ref --migraphx 2.15 --batch N --for CONSUMER --on-miss wait"
    )
    words = command.replace("--batch N", "--batch 4").replace("CONSUMER", "python")
    compiled = mxr(*shlex.split(words)[1:], "--json").json
    assert compiled["source"] == "compiled"
    assert mxr("fetch", convnet, "--kind", "ref", "--json").json["id"] == compiled["id"]
