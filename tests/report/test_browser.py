"""The page in a real browser: nothing fails, nothing is asked of anybody, and everything is there to see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from codedfl.report import read_runs, render_page, write_report
from tests.report.conftest import HOSTILE
from tests.report.test_page import sweep_of
from tests.report.test_watch import serving
from tests.support import CLI_SMALL

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
DESKTOP, PHONE = (1200, 900), (390, 844)
LONGEST_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("there is no Chromium: install the Debian package chromium")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """A page and everything that went on while it was open."""

    page: Any
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def evaluate(self, script: str) -> Any:
        return self.page.evaluate(script)


@contextmanager
def visiting(
    browser: Any,
    address: str,
    size: tuple[int, int] = DESKTOP,
    colours: Literal["light", "dark"] = "light",
    *,
    scripts: bool = True,
) -> Iterator[Visit]:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=colours, java_script_enabled=scripts
    )
    visit = Visit(context.new_page())
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    visit.page.on("console", lambda message: visit.problems.append(message.text))
    visit.page.on("pageerror", lambda error: visit.problems.append(str(error)))
    visit.page.on("dialog", lambda dialog: visit.problems.append(dialog.message))
    visit.page.goto(address)
    yield visit
    context.close()


def painted(visit: Visit, selector: str) -> list[int]:
    """Return how many pixels are painted on each canvas."""
    counted: list[int] = visit.evaluate(
        f"""[...document.querySelectorAll({selector!r})].map((canvas) => {{
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return data.filter((value, i) => i % 4 === 3 && value > 0).length;
        }})"""
    )
    return counted


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_page_works_alone(
    browser: Any, finished: Path, size: tuple[int, int], colours: Literal["light", "dark"]
) -> None:
    address = write_report([finished]).as_uri()
    with visiting(browser, address, size, colours) as visit:
        assert visit.evaluate("document.documentElement.scrollWidth") <= size[0], "it scrolls sideways"
        assert visit.evaluate("document.documentElement.dataset.theme") == colours
        charts = painted(visit, ".chart canvas")
        assert len(charts) == 3, "two clocks and a spectrum"
        assert min(charts) > 1000
        boxes = visit.evaluate(
            "[...document.querySelectorAll('.heat svg, .bars svg')].map((s) => s.getBoundingClientRect().width)"
        )
        assert len(boxes) >= 10
        assert sum(width > 50 for width in boxes) >= 10
        assert HOSTILE in visit.evaluate("document.querySelector('.heat').textContent")
        assert visit.evaluate("document.images.length") == 0
        assert len(visit.page.screenshot(full_page=True)) > 20_000
        assert visit.requests == [address]
        assert visit.problems == []


def test_curves_can_be_switched_and_read(browser: Any, finished: Path) -> None:
    with visiting(browser, write_report([finished]).as_uri()) as visit:
        page = visit.page
        before = painted(visit, "[data-clock=training] canvas")
        page.click("#switch-scheme-0")
        assert page.get_attribute("#switch-scheme-0", "aria-pressed") == "false"
        page.hover("[data-clock=training] .u-over")
        tip = page.inner_text("[data-clock=training] .tip")
        assert "SCFL" in tip
        assert "FedAvg" not in tip
        assert "%" in tip
        assert painted(visit, "[data-clock=training] canvas") != before
        page.focus("[data-clock=everything] .plot")
        page.keyboard.press("ArrowRight")
        assert page.is_visible("[data-clock=everything] .tip")
        ticks = painted(visit, "[data-clock=everything] canvas")
        page.click("#log-time")
        assert painted(visit, "[data-clock=everything] canvas") != ticks
        page.hover(".heat svg")
        assert "round" in page.inner_text("#float")
        page.click("#theme")
        assert visit.evaluate("document.documentElement.dataset.theme") == "dark"
        assert visit.problems == []


def test_curves_can_be_zoomed(browser: Any, finished: Path) -> None:
    with visiting(browser, write_report([finished]).as_uri()) as visit:
        limits = "Object.values(document.querySelector('.plot').chart.scales).map((scale) => [scale.min, scale.max])"
        whole = visit.evaluate(limits)
        surface = visit.page.locator(".plot .u-over").first
        surface.scroll_into_view_if_needed()
        box, mouse = surface.bounding_box(), visit.page.mouse
        mouse.move(box["x"] + 100, box["y"] + 30)
        mouse.down()
        mouse.move(box["x"] + 200, box["y"] + 90, steps=5)
        mouse.up()
        for (low, high), (least, most) in zip(visit.evaluate(limits), whole, strict=True):
            assert least < low < high < most
        mouse.dblclick(box["x"] + 150, box["y"] + 50)
        assert visit.evaluate(limits) == whole
        assert visit.problems == []


def test_text_and_tables_need_no_script(browser: Any, finished: Path) -> None:
    with visiting(browser, write_report([finished]).as_uri(), scripts=False) as visit:
        text = visit.page.inner_text("body")
        for words in ("Verdict", "FedAvg", "Who arrived when", "need JavaScript"):
            assert words in text
        visit.page.click("#config-table > summary")
        assert "training.rounds" in visit.page.inner_text("#config-table")
        assert visit.requests == [visit.page.url]


def test_a_printed_page_shows_what_was_folded_away(browser: Any, finished: Path, tmp_path: Path) -> None:
    with visiting(browser, write_report([finished]).as_uri(), colours="dark") as visit:
        visit.page.pdf(path=tmp_path / "page.pdf")
        assert (tmp_path / "page.pdf").stat().st_size > 30_000
        visit.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert visit.evaluate("[...document.querySelectorAll('details')].every((fold) => fold.open)")
        assert visit.evaluate("document.documentElement.dataset.theme") == "light"
        visit.evaluate("dispatchEvent(new Event('afterprint'))")
        assert not visit.evaluate("document.querySelector('#config-table').open"), "it is as it was before"
        assert visit.evaluate("document.documentElement.dataset.theme") == "dark"
        assert visit.problems == []


def test_a_run_is_seen_to_finish(browser: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codedfl", "run", *CLI_SMALL, "--out", "live"]
    (tmp_path / "live").mkdir()
    with serving(tmp_path / "live") as watch, visiting(browser, watch.url) as visit:
        assert "no run in this folder yet" in visit.page.inner_text("main")
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            visit.page.wait_for_selector(".badge.completed", timeout=LONGEST_MS)
            assert run.wait(60) == 0
        visit.page.wait_for_selector("#verdict .verdict li", timeout=LONGEST_MS)
        visit.page.click("#config-table > summary")
        (tmp_path / "live/versions.json").write_text('{"python": "changed"}')
        visit.page.wait_for_selector("#environment:has-text('changed')", timeout=LONGEST_MS)
        assert visit.evaluate("document.querySelector('#config-table').open"), "it was unfolded before the news"
        assert min(painted(visit, ".chart[data-clock] canvas")) > 1000
        assert {address.removeprefix(watch.url) for address in visit.requests} == {"", "data.json"}
        assert visit.problems == []


@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_a_sweep_keeps_to_its_width(browser: Any, finished: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    page = tmp_path / "sweep.html"
    page.write_text(render_page(sweep_of(read_runs([finished])[0])), encoding="utf-8")
    with visiting(browser, page.as_uri(), size) as visit:
        visit.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        assert visit.evaluate("document.documentElement.scrollWidth") <= size[0], "it scrolls sideways"
        wide = "[...document.querySelectorAll('.scrolls')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert visit.evaluate(wide) == 0, "a table scrolls sideways"
