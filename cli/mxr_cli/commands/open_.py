"""`mxr open`: the pages of the registry in a browser."""

from __future__ import annotations

import html
import os
from pathlib import Path

import click

from mxr.errors import UsageError
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import echo, note, print_json

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Without any of these variables, there is no browser to open."""

PAGE = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Go on</a>\n'


@command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@common
def open_(session: Session, *, only_print: bool) -> None:
    """Open the pages of the registry in a browser, signed in as the user of this command.

    The link works once and within a minute. It is printed with --print, and where there is no browser: who has it first
    is signed in.
    """
    url = session.settings.registry
    if not url.startswith("http"):
        raise UsageError(
            f"A browser cannot open {url}.", hint="Set MXR_REGISTRY to the URL of the registry that begins with http."
        )
    link = session.client().sign_in_link()
    if session.as_json:
        print_json({"url": url + link.path, "expires_at": link.expires_at.to_json()})
    elif only_print or not any(map(os.environ.get, DISPLAYS)) or not _open(url + link.path, session.settings.cache_dir):
        echo(url + link.path)
    else:
        note(f"mxr: opened {url} in a browser. If it shows nothing, open what `mxr open --print` prints.")


def _open(link: str, folder: Path) -> bool:
    """Open a link by a file that only this user can read: other users see the arguments of a browser."""
    import webbrowser

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "open.html"
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(PAGE.format(html.escape(link)))
    return webbrowser.open(path.as_uri())
