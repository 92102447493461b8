"""The status page in a real browser: quiet, alone, alive, readable, reachable, commanded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.node import CHAT, CODE, HOSTILE, Story, alert, card, incident, service
from tests.pages.serving import TOKEN, Served, served
from tests.report.browser import Browser, browser
from tests.support import peers
from tests.support.daemon import daemon, wait_for
from vllm_watchdog.watchdog.api.standing import Waiting

pytestmark = pytest.mark.peer

SPOKEN = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
RENEWED = "performance.getEntriesByName(new URL('api/v1/page?lang=' + document.documentElement.lang, location).href).length"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found
        assert found.reports == []


def sized(page: Browser, width: int) -> None:
    page.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1,
        mobile=width < 500,
    )  # fmt: skip


def coloured(page: Browser, scheme: str) -> None:
    page.ask(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )


def opened(page: Browser, node: Served, path: str = "/?lang=en") -> Browser:
    """The page, once its script has looked for the first time and drawn."""
    sized(page, 1280)
    coloured(page, "light")
    page.events.clear()
    page.open(node.url + path)
    wait_for(lambda: page.value(RENEWED))
    wait_for(lambda: page.value("document.querySelectorAll('.plot canvas').length"))
    return page


def awaited(page: Browser, expression: str) -> Any:
    found = page.ask(
        "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
    )
    assert "exceptionDetails" not in found, found
    return found["result"].get("value")


def cells(page: Browser, table: str) -> list[list[str]]:
    rows: list[list[str]] = page.value(
        f"[...document.getElementById('{table}').tBodies[0].rows]"
        ".map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return rows


def typed(page: Browser, field: str, text: str) -> None:
    page.value(f"document.getElementById('{field}').focus()")
    page.ask("Input.insertText", text=text)


def unlocked(page: Browser) -> None:
    typed(page, "token", TOKEN)
    page.press("Enter", 13)
    page.value("document.querySelector('#unlock button').click()")
    wait_for(lambda: page.value("!document.getElementById('pause').hidden"))


def test_the_browser_has_nothing_to_complain_of_and_asks_only_this_node(
    window: Browser, node: Served
) -> None:
    page = opened(window, node)
    page.value("1")

    assert page.told(*SPOKEN) == []
    urls = {each["request"]["url"] for each in page.told("Network.requestWillBeSent")}
    assert len(urls) >= 6
    assert [url for url in urls if not url.startswith(node.url + "/")] == []


def test_a_changed_figure_shows_without_a_reload(window: Browser, node: Served) -> None:
    page = opened(window, node)
    page.value("window.same = 1")
    assert ["elasticsearch", "down", "1,840"] in [row[:3] for row in cells(page, "outlets")]

    node.story.status_doc["outlets"][1] = {
        "outlet": "elasticsearch", "up": True, "lag": 12, "error": None,
    }  # fmt: skip
    node.story.alert_docs = [alert("ResponseSlow", "warning", "slow again", service=CHAT)]
    node.story.healing_doc["acts"] = []

    wait_for(lambda: ["elasticsearch", "ok", "12", ""] in cells(page, "outlets"))
    assert [row[0] for row in cells(page, "alerts")] == ["ResponseSlow"]
    assert page.value("document.getElementById('headline').innerText") == "1 alert is firing"
    assert page.value("document.querySelector('[data-tile=acts]').innerText") == "0"
    assert page.value("document.getElementById('acts').hidden")
    assert page.value("window.same") == 1


def test_a_daemon_that_does_not_answer_is_told_and_its_return_too(
    window: Browser, node: Served
) -> None:
    page = opened(window, node)
    look = "void document.dispatchEvent(new Event('visibilitychange'))"
    lost = "document.getElementById('lost').innerText"
    page.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
             uploadThroughput=-1)  # fmt: skip
    try:
        page.value(look)
        wait_for(lambda: "does not answer" in page.value(lost))
    finally:
        page.ask("Network.emulateNetworkConditions", offline=False, latency=0,
                 downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
    page.value(look)

    wait_for(lambda: page.value(lost) == "")
    assert page.value("document.getElementById('lost').hidden")


def test_what_has_the_focus_keeps_it_when_the_page_renews_itself(
    window: Browser, node: Served
) -> None:
    page = opened(window, node)
    unlocked(page)
    page.value("document.querySelector('.approve button').focus()")
    seen = page.value(RENEWED)
    node.story.healing_doc["waiting"][0]["since"] = "2023-11-14T22:00:00.000Z"
    page.value("document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(lambda: page.value(RENEWED) > seen and "22:00:00" in str(cells(page, "waiting")))

    assert page.value("document.activeElement.innerText") == "Approve"


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(
    window: Browser, node: Served, scheme: str, lang: str, width: int
) -> None:
    checker = peers.library("axe-core") / "axe.min.js"
    node.story.healing_doc |= {"hold_file": True, "breaker": "too many acts"}
    page = opened(window, node, f"/?lang={lang}")
    sized(page, width)
    coloured(page, scheme)
    unlocked(page)
    page.value(checker.read_text() + "; 1")
    options = "{resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"
    found = awaited(
        page,
        f"axe.run(document, {options}).then(r => [r.passes.length, r.violations.map("
        "v => [v.id, v.nodes.map(n => n.target.join(' ') + ' ' + n.failureSummary)])])",
    )

    assert found[1] == []
    assert found[0] > 10
    grounds = {"light": "rgb(245, 247, 249)", "dark": "rgb(11, 15, 20)"}
    assert page.value("getComputedStyle(document.body).backgroundColor") == grounds[scheme]


def test_the_keyboard_reaches_each_control_and_shows_where_it_is(
    window: Browser, node: Served
) -> None:
    page = opened(window, node)
    unlocked(page)
    page.value("document.querySelector('.skip').focus()")
    wanted = page.value(
        "[...document.querySelectorAll('a[href], button, input, select')]"
        ".filter(each => each.checkVisibility())"
        ".map((each, number) => each.dataset.number = String(number))"
    )
    reached = [page.value("document.activeElement.dataset.number")]
    for _ in wanted[1:]:
        page.press("Tab", 9)
        reached.append(page.value("document.activeElement.dataset.number"))
        shown = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.value(shown) == "solid", reached[-1]

    assert reached == wanted
    assert len(wanted) >= 15


def hostile() -> Story:
    """A node whose names and texts are as long and as ill meant as they can be."""
    story = Story()
    long = "x" * 250
    story.alert_docs = [alert(HOSTILE, "critical", HOSTILE + long, card=long, odd=HOSTILE)]
    story.status_doc["services"].append(service(HOSTILE + long, mode=HOSTILE, cards=[long]))
    story.status_doc["cards"] = [{**card("01", 1), "card": HOSTILE, "model": long}]
    story.status_doc["instance"] = long
    story.incident_docs = [incident(HOSTILE, HOSTILE, -60, None, HOSTILE + "\u202egnp.exe")]
    story.healing_doc["breaker"] = HOSTILE
    story.healing_doc["acts"][0]["service"] = long
    return story


@pytest.mark.parametrize("made", [Story, hostile])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_is_never_wider_than_its_window(
    window: Browser, tmp_path: Path, made: Any, lang: str
) -> None:
    with served(tmp_path, made()) as node:
        page = opened(window, node, f"/?lang={lang}")
        unlocked(page)
        for width in (320, 375, 600, 768, 1024, 1280):
            sized(page, width)
            assert page.value("document.scrollingElement.scrollWidth") <= width


def test_hostile_text_is_text_before_and_after_the_page_renews_itself(
    window: Browser, tmp_path: Path
) -> None:
    with served(tmp_path, hostile()) as node:
        page = opened(window, node)
        for _ in range(2):
            assert page.value("document.querySelectorAll('main script, main img').length") == 0
            assert HOSTILE in page.value("document.getElementById('cards').innerText")
            assert "\u202e" not in page.value("document.body.innerText")
            seen = page.value(RENEWED)
            node.story.status_doc["cards"].append({**card("02", 2), "card": HOSTILE + "2"})
            page.value("document.dispatchEvent(new Event('visibilitychange'))")
            wait_for(lambda seen=seen: page.value(RENEWED) > seen)  # type: ignore[misc]
        wait_for(lambda: len(cells(page, "cards")) >= 2)

        assert page.told(*SPOKEN) == []


def test_without_a_script_the_tables_stand_and_nothing_is_promised(
    window: Browser, node: Served
) -> None:
    window.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        sized(window, 1280)
        window.open(node.url + "/?lang=en")
        document = window.ask("DOM.getDocument")["root"]["nodeId"]

        def shown(selector: str) -> list[bool]:
            found = window.ask("DOM.querySelectorAll", nodeId=document, selector=selector)
            return [_height(window, each) > 0 for each in found["nodeIds"]]

        assert shown("#cards tbody tr") == [True] * 8
        assert shown("#services tbody tr, #acts tbody tr, #waiting tbody tr") == [True] * 4
        assert shown("noscript p") == [True]
        assert any(shown("#plots, #control, button, input, select")) is False
    finally:
        window.ask("Emulation.setScriptExecutionDisabled", value=False)


def _height(page: Browser, node: int) -> float:
    try:
        return float(page.ask("DOM.getBoxModel", nodeId=node)["model"]["height"])
    except AssertionError:  # it has no box
        return 0.0


def test_the_plots_are_drawn_in_the_colours_of_light_and_dark(
    window: Browser, node: Served
) -> None:
    page = opened(window, node)
    inked = """
        [...document.querySelectorAll('.plot canvas')].map(canvas => {
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Set();
          for (let i = 0; i < pixels.data.length; i += 4)
            if (pixels.data[i + 3] === 255) seen.add(pixels.data.slice(i, i + 3).join());
          return [...seen];
        })
    """
    light = page.value(inked)
    coloured(page, "dark")
    wait_for(lambda: "121,192,255" in page.value(inked)[0])

    assert len(light) == 7
    assert all("5,80,174" in seen for seen in light)
    captions = page.value("[...document.querySelectorAll('figure .key')].map(k => k.innerText)")
    assert f"{CHAT} 62 %" in captions[0]


@pytest.mark.parametrize(
    ("accepted", "path", "lang", "title"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "/", "zh", "告警"),
        ("zh-CN", "/?lang=en", "en", "Alerts"),
        ("de", "/", "en", "Alerts"),
    ],
)
def test_the_page_speaks_the_language_of_the_browser_or_of_the_address(
    window: Browser, node: Served, accepted: str, path: str, lang: str, title: str
) -> None:
    window.ask("Network.setExtraHTTPHeaders", headers={"Accept-Language": accepted})
    try:
        page = opened(window, node, path)
    finally:
        window.ask("Network.setExtraHTTPHeaders", headers={})

    assert page.value("document.documentElement.lang") == lang
    assert page.value("document.querySelector('h2').innerText") == title


def test_nothing_can_be_changed_before_the_right_token_is_typed_in(
    window: Browser, node: Served
) -> None:
    page = opened(window, node)
    assert page.value("document.querySelectorAll('.approve button').length") == 0
    typed(page, "token", "wrong")
    page.value("document.querySelector('#unlock button').click()")

    told = "document.getElementById('told').innerText"
    wait_for(lambda: page.value(told) == "the token is not right")
    assert page.value("document.getElementById('pause').hidden")
    assert page.value("document.querySelectorAll('.approve button').length") == 0
    assert node.desk.commands == []


def test_with_the_token_a_service_is_paused_and_an_act_approved(
    window: Browser, node: Served
) -> None:
    node.desk.now = node.desk.now.__class__(
        mode="act", services=(CHAT, CODE), waiting=(waits(CODE),)
    )
    page = opened(window, node)
    unlocked(page)
    page.value(f"document.getElementById('whom').value = '{CHAT}'")
    typed(page, "reason", "driver update")
    page.value("document.querySelector('[data-verb=pause]').click()")
    wait_for(lambda: node.desk.commands)
    page.value("document.querySelector('.approve button').click()")
    wait_for(lambda: len(node.desk.commands) == 2)

    pause = {"service": CHAT, "reason": "driver update", "for": 1800.0}
    assert node.desk.verbs == [("pause", pause), ("approve", {"id": CODE})]
    wait_for(lambda: page.value("document.getElementById('told').className") == "good")


def waits(name: str) -> Any:
    return Waiting(name, name, "quantize", "device_memory", "MemoryOverflow", 0.0)


def test_the_token_is_kept_nowhere_and_can_be_forgotten(window: Browser, node: Served) -> None:
    page = opened(window, node)
    unlocked(page)

    kept = (
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert TOKEN.split()[1] not in page.value(kept)
    assert page.value("document.getElementById('token').value") == ""
    assert TOKEN not in page.value("document.documentElement.outerHTML")
    page.value("document.getElementById('forget').click()")
    assert page.value("document.getElementById('pause').hidden")
    assert page.value("document.querySelectorAll('.approve button').length") == 0


RULES = """\
groups:
  - name: g
    rules:
      - alert: Always
        expr: service_up == 0
        labels: {service: deepseek-r1, severity: warning}
        annotations: {summary: "always"}
"""


def test_a_real_daemon_is_answered_and_paused_from_its_page(
    window: Browser, tmp_path: Path
) -> None:
    """The act is declined: the service has no front to drain."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "rules.yaml").write_text(RULES)
    settings = {
        "mode": "confirm",
        "interval": "250ms",
        "control": {"token_file": str(tmp_path / "token")},
        "rules": {"files": [str(tmp_path / "rules.yaml")]},
        "services": {CHAT: {"url": "http://127.0.0.1:9", "probe": {"kind": "none"}}},
        "policies": [{"when": ["Always"], "do": ["drain", "page"]}],
    }
    with daemon(tmp_path, settings) as running:
        node = Served(running.url, Story(), None)  # type: ignore[arg-type]
        sized(window, 1280)
        window.events.clear()
        window.open(node.url + "/?lang=en")
        look = "void document.dispatchEvent(new Event('visibilitychange'))"
        wait_for(lambda: window.value(look) or CHAT in str(cells(window, "waiting")))
        as_told_here(running.server.get("/api/v1/status"), running.server.get("/api/v1/healing"))
        unlocked(window)
        window.value("document.querySelector('.approve button').click()")
        wait_for(lambda: window.value(look) or "declined" in str(cells(window, "done")))
        assert cells(window, "done")[0][1:3] == ["drain", CHAT]
        assert "a person was paged" in str(cells(window, "refused"))
        typed(window, "reason", "driver update")
        window.value("document.querySelector('[data-verb=pause]').click()")

        wait_for(
            lambda: "Paused: all services, until" in window.value(
                "document.getElementById('notes').innerText"
            )
        )  # fmt: skip
        assert window.told(*SPOKEN) == []


def as_told_here(status: Any, healing: Any) -> None:
    """The story's documents have the daemon's own keys."""
    story = Story()
    assert sorted(status) == sorted(story.status_doc)
    assert sorted(healing) == sorted(story.healing_doc)
    for name, real, told in (
        ("services", status, story.status_doc), ("collectors", status, story.status_doc),
        ("services", healing, story.healing_doc), ("cases", healing, story.healing_doc),
        ("waiting", healing, story.healing_doc), ("budgets", healing, story.healing_doc),
    ):  # fmt: skip
        assert sorted(real[name][0]) == sorted(told[name][0]), name
