"""The command group: every command has a module, and starting `mxr` imports no more than it needs."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from mxr_cli.main import COMMANDS, mxr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_help(name: str) -> None:
    with click.Context(mxr, info_name="mxr") as parent:
        command = mxr.get_command(parent, name)
        assert command is not None and command.name == name
        text = command.get_help(click.Context(command, info_name=name, parent=parent))
    assert text.startswith(f"Usage: mxr {name} ")
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_help_imports_no_command_and_no_client() -> None:
    """The start-up time of `mxr` is part of every fetch."""
    code = (
        "import sys; from mxr_cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: print(*(name for name in sys.modules if name.startswith(('mxr', 'urllib3'))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert "mxr_cli.main" in loaded
    assert not [name for name in loaded if name.startswith(("mxr_cli.commands", "mxr.client", "mxr.api", "urllib3"))]
