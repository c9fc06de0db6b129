"""`mxr completion`: the script by which a shell completes `mxr`."""

from __future__ import annotations

import click

from mxr.display.streams import write_text
from mxr_cli.help import command
from mxr_cli.options import Session, local
from mxr_cli.output import print_json

SHELLS = ("bash", "zsh", "fish")


@command()
@click.argument("shell", type=click.Choice(SHELLS))
@local
def completion(session: Session, shell: str) -> None:
    """Print the script that completes commands, options and values of `mxr` in SHELL: bash (4.4 or newer), zsh or fish.

    Model names and ids come from the registry, or from the cache while the registry is away.

    \b
    mxr completion bash > ~/.local/share/bash-completion/completions/mxr
    mxr completion zsh > ~/.zfunc/_mxr           # with fpath+=~/.zfunc before compinit in ~/.zshrc
    mxr completion fish > ~/.config/fish/completions/mxr.fish
    """
    from click.shell_completion import get_completion_class

    from mxr_cli.main import mxr

    kind = get_completion_class(shell)
    assert kind is not None
    # Not asked for its version, which `check` of bash would start.
    script = kind.source_template % kind(mxr, {}, "mxr", "_MXR_COMPLETE").source_vars()
    print_json({"shell": shell, "script": script}) if session.as_json else write_text(script)
