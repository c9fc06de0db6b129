"""The pages in Chromium: accessible, in both colours and widths, by keyboard, and without a script."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from playwright.sync_api import Browser, BrowserContext, Page
from registry.registry_client import RegistryUnderTest
from servers.chromium import SCHEMES, WIDTHS, chromium, html_faults, violations

WAIT = 20_000
"""Milliseconds that a busy machine may need."""


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def fleet(server: RegistryUnderTest) -> Any:
    """A registry with a day of the made-up fleet of the demonstration, and what is in it."""
    spec = importlib.util.spec_from_file_location("fleet", ROOT / "examples" / "fleet.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["fleet"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    token = server.ok("POST", "/v1/tokens", {"name": "vision", "scopes": ["admin"]})["secret"]
    found = module.Fleet(server.url, token)
    found.live()
    # On a busy machine, the tests take longer than a lease.
    server.rows.execute("UPDATE jobs SET lease_until = lease_until + 36000 WHERE state = 'running'")
    return found


@pytest.fixture
def jobs(server: RegistryUnderTest, fleet: Any) -> dict[str, str]:
    """A job of each state, by its id."""
    assert fleet.token
    found = {each["state"]: each["id"] for each in server.ok("GET", "/v1/jobs?limit=1000")["items"]}
    assert {"queued", "running", "done", "failed"} <= found.keys(), "the pages show each of them"
    return found


@pytest.fixture
def paths(server: RegistryUnderTest, jobs: dict[str, str]) -> dict[str, str]:
    """The pages, by a name."""
    artifact = server.ok("GET", "/v1/artifacts?arch=gfx942")["items"][0]["id"]
    found = {"home": "/", "nothing": "/?name=zzz", "week": "/misses?hours=168&arch=gfx942", "jobs": "/jobs"}
    found |= {f"job {state}": f"/jobs/{id}" for state, id in jobs.items()}
    miss = server.ok("GET", "/v1/misses?reason=toolchain")["items"][0]["id"]
    found |= {"explain": "/explain", "explained": f"/explain?miss={miss}"}
    found |= {"matrix": "/matrix", "missing": "/matrix?state=missing"}
    return found | {"fleet": "/fleet", "artifact": f"/artifacts/{artifact}", "problem": "/jobs/x"}


def context(browser: Browser, **options: Any) -> BrowserContext:
    found = browser.new_context(**options)
    found.set_default_timeout(WAIT)
    return found


def sign_in(page: Page, fleet: Any) -> None:
    page.goto(f"{fleet.url}/sign-in")
    page.fill("#token", fleet.token)
    page.click("button.main")
    page.wait_for_selector("ol.misses")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_everybody_can_use_each_page(
    browser: Browser, fleet: Any, paths: dict[str, str], scheme: Any, width: int
) -> None:
    """axe-core finds nothing, nothing is wider than the screen, and the console has no error."""
    said: list[str] = []
    with context(browser, color_scheme=scheme, viewport={"width": width, "height": 900}) as screen:
        page = screen.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda problem: said.append(str(problem)))
        page.goto(f"{fleet.url}/sign-in")
        assert violations(page) == []
        sign_in(page, fleet)
        for name, path in paths.items():
            page.goto(fleet.url + path)
            page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert violations(page) == [], name
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} pixels wider than the screen"
            assert len(page.content()) < 100_000, name
    assert [each for each in said if "422" not in each] == []


def test_the_html_is_valid(browser: Browser, fleet: Any, paths: dict[str, str], tmp_path: Path) -> None:
    with context(browser) as screen:
        page = screen.new_page()
        sign_in(page, fleet)
        for name, path in paths.items():
            (tmp_path / f"{name}.html").write_text(screen.request.get(fleet.url + path).text())
        (tmp_path / "sign-in.html").write_text(screen.request.get(f"{fleet.url}/sign-in").text())
    assert html_faults(tmp_path) == []


def test_a_keyboard_reaches_everything(browser: Browser, fleet: Any, paths: dict[str, str]) -> None:
    """Each link, field, button and summary that is shown gets the focus, in their order, and shows it."""
    with context(browser) as screen:
        page = screen.new_page()
        sign_in(page, fleet)
        for name in ("home", "explained", "matrix", "jobs", "fleet", "artifact"):
            page.goto(fleet.url + paths[name])
            wanted = page.evaluate(
                """() => [...document.querySelectorAll('a[href], input, textarea, select, button, summary, [tabindex]')]
                .filter(each => each.checkVisibility() && !each.closest('details:not([open]) > :not(summary)'))
                .map((each, place) => (each.dataset.place = place, place))"""
            )
            seen, outlines = [], []
            while len(seen) < len(wanted):
                page.keyboard.press("Tab")
                place, outline = page.evaluate(
                    "() => [document.activeElement].map(on => [on.dataset.place, getComputedStyle(on).outlineStyle])[0]"
                )
                if place is None:
                    break
                seen.append(int(place))
                outlines.append(outline)
            assert seen == wanted, name
            assert "none" not in outlines, name
        page.goto(fleet.url)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main"


def test_without_a_script_everything_works(browser: Browser, fleet: Any) -> None:
    with context(browser, java_script_enabled=False) as screen:
        page = screen.new_page()
        page.goto(f"{fleet.url}/misses?arch=gfx908")
        assert page.url.startswith(f"{fleet.url}/sign-in?next=")
        page.fill("#token", fleet.token)
        page.click("button.main")
        assert page.url == f"{fleet.url}/misses?arch=gfx908"
        first = page.locator("ol.misses > li").first
        assert first.locator(".m-body").is_visible()
        page.fill("input[name=name]", "resnet50")
        page.click("form.filter button")
        assert "name=resnet50" in page.url and "resnet50.onnx" in page.inner_text("ol.misses")
        page.click("text=Sign out")
        assert page.url == f"{fleet.url}/sign-in"
        page.goto(fleet.url)
        assert "/sign-in" in page.url


def test_what_changes_is_renewed_while_somebody_looks(
    browser: Browser, server: RegistryUnderTest, fleet: Any, jobs: dict[str, str]
) -> None:
    name = server.ok("GET", f"/v1/jobs/{jobs['running']}")["worker"]
    with context(browser) as screen:
        page = screen.new_page()
        page.clock.install()
        sign_in(page, fleet)
        page.goto(f"{fleet.url}/fleet")
        strip = page.locator("#workers tr", has_text=name)
        before = strip.inner_text()
        server.rows.execute(f"UPDATE workers SET name = 'renamed' WHERE name = '{name}'")
        try:
            page.clock.fast_forward(16_000)
            page.wait_for_selector("#workers tr:has-text('renamed')")
        finally:
            server.rows.execute(f"UPDATE workers SET name = '{name}' WHERE name = 'renamed'")
        assert strip.count() == 0 and before
        assert page.locator("#workers time[title*='(20']").count() > 0, "times of the new part have the reader's zone"


def test_a_log_goes_on_while_its_job_runs(
    browser: Browser, server: RegistryUnderTest, fleet: Any, jobs: dict[str, str]
) -> None:
    job = jobs["running"]
    with context(browser) as screen:
        page = screen.new_page()
        sign_in(page, fleet)
        page.goto(f"{fleet.url}/jobs/{job}")
        beat = {"lease": fleet.secrets[job], "phase": "compile", "log": "tuned 71 of 96 <b>kernels</b>\n"}
        server.ok("POST", f"/v1/jobs/{job}/heartbeat", beat)
        page.wait_for_selector("#log:has-text('71 of 96 <b>kernels</b>')")
        assert page.locator("#log b").count() == 0


def test_a_command_is_copied(browser: Browser, fleet: Any) -> None:
    with context(browser, permissions=["clipboard-read", "clipboard-write"]) as screen:
        page = screen.new_page()
        sign_in(page, fleet)
        page.click("ol.misses > li:first-child .cmd button")
        page.wait_for_selector("text=Copied")
        assert page.evaluate("navigator.clipboard.readText()") in ("mxr-worker run",)


def test_times_are_those_of_the_reader(browser: Browser, fleet: Any) -> None:
    with context(browser, timezone_id="Asia/Tokyo", locale="en-GB") as screen:
        page = screen.new_page()
        sign_in(page, fleet)
        title = page.locator("time").first.get_attribute("title")
        assert title is not None and "GMT+9" in title and "Z)" in title


def test_a_page_of_another_host_signs_nobody_in(browser: Browser, fleet: Any) -> None:
    """A form that a foreign page sends with the token of an attacker."""

    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = f'<form method="post" action="{fleet.url}/sign-in"><input name="token" value="{fleet.token}"></form>'
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!DOCTYPE html>{form}<script>document.forms[0].submit()</script>".encode())

        def log_message(self, *_: Any) -> None:
            pass

    foreign = HTTPServer(("127.0.0.1", 0), Foreign)
    thread = threading.Thread(target=foreign.serve_forever)
    thread.start()
    try:
        with context(browser) as screen:
            page = screen.new_page()
            page.goto(f"http://localhost:{foreign.server_port}/")
            page.wait_for_url(f"{fleet.url}/sign-in")
            assert "A web page from the origin" in page.content() and screen.cookies() == []
    finally:
        foreign.shutdown()
        thread.join()
        foreign.server_close()


def test_a_page_prints(browser: Browser, fleet: Any) -> None:
    """Every miss is open, and what leads nowhere on paper is gone."""
    with context(browser) as screen:
        page = screen.new_page()
        sign_in(page, fleet)
        page.emulate_media(media="print")
        assert not page.locator("nav.nav").is_visible() and page.locator(".m-body").last.is_visible()
