"""A report in a real browser, from a file: quiet, alone, readable on a phone and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report import story
from tests.report.browser import Browser, browser
from tests.support import peers
from tests.support.daemon import wait_for
from vllm_watchdog.watchdog.report import StateSource, compose, html

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The report on the story, hostile lines and all, opened from a file."""
    folder = tmp_path_factory.mktemp("browser")
    source = StateSource(story.state(folder / "s"), "node-1:9710")
    path = folder / "report.html"
    path.write_text(html(compose(source, source.incidents()[0], "1", story.START + 300)))
    with browser(folder / "profile") as found:
        found.open(path.as_uri())
        yield found


def test_the_browser_has_nothing_to_complain_of_and_asks_for_nothing(page: Browser) -> None:
    page.value("1")

    spoken = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    assert page.told(*spoken) == []
    urls = [each["request"]["url"] for each in page.told("Network.requestWillBeSent")]
    assert {url.partition(":")[0] for url in urls} - {"data"} == {"file"}
    assert len([url for url in urls if url.startswith("file:")]) == 1


def test_a_hostile_line_is_read_as_text(page: Browser) -> None:
    assert page.value("document.querySelectorAll('script, img, main a').length") == 0
    assert "<script>alert(1)</script>" in page.value("document.body.innerText")


def test_plots_are_drawn_inside_their_pictures(page: Browser) -> None:
    lines = page.value(
        "[...document.querySelectorAll('figure > svg .line')].map(line => line.getTotalLength())"
    )

    assert len(lines) == 2
    assert min(lines) > 100


@pytest.mark.parametrize("width", [320, 375, 1280])
def test_the_page_is_never_wider_than_its_window(page: Browser, width: int) -> None:
    page.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1,
        mobile=False,
    )  # fmt: skip

    assert page.value("document.scrollingElement.scrollWidth") <= width


def test_the_keyboard_reaches_each_part_and_each_table(page: Browser) -> None:
    page.value("document.activeElement.blur(), window.scrollTo(0, 0)")
    wanted = page.value("document.querySelectorAll('a, [tabindex]').length")
    reached = []
    for _ in range(wanted):
        page.press("Tab", 9)
        name = "document.activeElement.getAttribute('href') || document.activeElement.ariaLabel"
        reached.append(page.value(name))

    assert reached[:2] == ["#diagnosis", "#acts"]
    assert "Table: Timeline" in reached
    assert len(set(reached)) == wanted


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_an_accessibility_checker_finds_nothing(page: Browser, scheme: str, width: int) -> None:
    checker = peers.library("axe-core") / "axe.min.js"
    page.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1,
        mobile=False,
    )  # fmt: skip
    page.ask(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    page.value(checker.read_text() + "; 1")
    page.value(
        "window.found = null; axe.run(document, {resultTypes: ['violations'], "
        "runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
        ".then(r => { window.found = [r.passes.length, r.violations.map("
        "v => [v.id, v.nodes.map(n => n.target.join(' ') + ' ' + n.failureSummary)])] }); 1"
    )
    found = wait_for(lambda: page.value("window.found"))

    assert found[1] == []
    assert found[0] > 10


CONTRAST = """
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const light = colour => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(
      c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'white';
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = 21;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('title')) continue;
    const style = getComputedStyle(element);
    const pair = [light(element.closest('svg') ? style.fill : style.color), light(ground(element))];
    least = Math.min(least, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05));
  }
  return least;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_ground(page: Browser, scheme: str) -> None:
    page.ask(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    ground = page.value("getComputedStyle(document.body).backgroundColor")

    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}[scheme]
    assert page.value(CONTRAST) >= 4.5
