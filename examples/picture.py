"""Make docs/page.webp, the picture of the first page in README.md: Debian's Chromium, and the made-up fleet.

`make picture` runs this script. It needs the environment of `make setup`, and the program `chromium`.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from demo import EXAMPLES, Demo, demo_environ, fill, start_registry
from playwright.sync_api import sync_playwright

from mxr.display.streams import write_line

PICTURE = EXAMPLES.parent / "docs" / "page.webp"
SIZE = {"width": 1180, "height": 760}


def main() -> None:
    """Make the picture."""
    with tempfile.TemporaryDirectory(prefix="mxr-picture-") as folder, sync_playwright() as playwright:
        demo = Demo(demo_environ(Path(folder)))
        server = start_registry(demo, Path(folder) / "registry-data")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        try:
            url, token = fill(demo, Path(folder) / "registry-data")
            page = browser.new_page(viewport=SIZE, color_scheme="light", locale="en-GB")
            page.goto(f"{url}/sign-in")
            page.fill("#token", token)
            page.click("button.main")
            page.wait_for_selector("ol.misses")
            # Counts of answers are written every ten seconds.
            page.wait_for_timeout(11_000)
            page.reload()
            session = page.context.new_cdp_session(page)
            taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": 80})
            PICTURE.write_bytes(base64.b64decode(taken["data"]))
            write_line(f"{PICTURE.name}: {PICTURE.stat().st_size / 1024:.0f} KiB")
        finally:
            browser.close()
            server.terminate()
            server.wait(timeout=30)


if __name__ == "__main__":
    main()
