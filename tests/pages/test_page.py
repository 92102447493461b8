"""What the page says, without a browser: rows and cells, both languages, and how it is served."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.pages.node import CHAT, HOSTILE, LOST, NOW, Story, alert, at, event
from tests.pages.serving import Served, served
from tests.test_views import made
from vllm_watchdog.watchdog.api.pages import Pages, words
from vllm_watchdog.watchdog.api.pages.chinese import CHINESE
from vllm_watchdog.watchdog.diagnosis import CAUSES
from vllm_watchdog.watchdog.guard import ACTS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


def ask(node: Served, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(node.url).netloc, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def table(story: Any, name: str, lang: str = "en") -> dict[str, list[str]]:
    """Key → the cells' texts, their lists behind them."""
    (found,) = (each for each in Pages(story).doc(lang, "")["tables"] if each["name"] == name)
    return {
        row["key"]: [
            "; ".join([cell["text"], *(item[0] for item in cell.get("items", ()))]).strip("; ")
            for cell in row["cells"]
        ]
        for row in found["rows"]
    }


def plain(cells: list[str]) -> list[str]:
    return [cell.replace("\u00a0", " ") for cell in cells]


def tone(story: Any, name: str, key: str, column: int) -> str:
    (found,) = (each for each in Pages(story).doc("en", "")["tables"] if each["name"] == name)
    (row,) = (row for row in found["rows"] if row["key"] == key)
    return str(row["cells"][column].get("style", ""))


class Cells(HTMLParser):
    """Table → rows → texts of cells, as the page's markup has them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._name, self._inside = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self._name = str(given["id"])
            self.found[self._name] = []
        if tag == "tr" and "data-key" in given:
            self.found[self._name].append([])
        if tag in ("td", "th") and "data-head" in given:
            self.found[self._name][-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[self._name][-1][-1] += data


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_markup_has_the_same_cells_as_the_document_that_renews_it(lang: str) -> None:
    story = Story()
    read = Cells()
    read.feed(Pages(story).page(lang, ""))
    doc = Pages(story).doc(lang, "")

    assert read.found == {
        each["name"]: [
            [c["text"] + "".join(i[0] for i in c.get("items", ())) for c in row["cells"]]
            for row in each["rows"]
        ]
        for each in doc["tables"]
    }


def test_a_service_shows_mode_profile_instance_progress_and_failure_rate() -> None:
    shown = table(Story(), "services")

    assert plain(shown[CHAT])[1:8] == [
        "no process", "act", "standby", "as configured", "0 running, 31 waiting",
        "last token 38 s ago", "62 %",
    ]  # fmt: skip
    assert plain(shown["qwen-coder"])[1:8] == [
        "answers", "confirm", "primary", "int8", "9 running, 0 waiting", "last token 0.4 s ago",
        "0.1 %",
    ]  # fmt: skip


def test_a_card_shows_health_load_memory_temperature_and_who_quarantined_it() -> None:
    shown = table(Story(), "cards")

    assert plain(shown["0000:01:00"]) == [
        "0000:01:00", "Ascend 910B3", "healthy", "71 %", "57.2 / 64", "47 °C", "281 W", "",
    ]  # fmt: skip
    assert plain(shown[LOST])[2:] == ["gone", "", "", "", "", "by the daemon: card lost"]
    assert shown["0000:c1:00"][-1] == f"kept for {CHAT}"


def test_a_quarantined_card_that_nothing_sees_any_more_is_shown() -> None:
    story = Story()
    story.healing_doc["quarantined"].append({"card": "npu 9", "why": "noisy fan", "by": "a person"})

    assert table(story, "cards")["npu 9"][2::5] == ["unknown", "by a person: noisy fan"]


def test_what_is_not_known_is_neither_well_nor_ill() -> None:
    story = Story()
    story.status_doc["cards"][0] |= {"present": None, "healthy": None, "temperature": "NaN"}
    story.status_doc["services"][0] |= {"up": None, "health": None, "probe": None}
    story.healing_doc["services"] = []

    assert table(story, "cards")["0000:01:00"][2] == "unknown"
    assert table(story, "services")[CHAT][1] == "unknown"
    assert tone(story, "services", CHAT, 1) == tone(story, "cards", "0000:01:00", 2) == "quiet"


@pytest.mark.parametrize(
    ("given", "shown", "style"),
    [
        ({"process": False}, "no process", "bad"),
        ({"operation": "restart", "process": False}, "restart under way", "warn"),
        ({"probe": "failed"}, "real request failed", "bad"),
        ({"probe": "slow"}, "slow", "warn"),
        ({"probe": "unknown", "up": 1}, "is up", "good"),
        ({"probe": "ok", "up": 0}, "does not answer", "bad"),
        ({"probe": "ok"}, "answers", "good"),
    ],
)
def test_one_word_for_how_a_service_is(given: dict[str, Any], shown: str, style: str) -> None:
    story = Story()
    story.status_doc["services"] = [{"service": CHAT, "mode": "act", "probe": None, **given}]
    story.healing_doc["services"] = []

    assert table(story, "services")[CHAT][1] == shown
    assert tone(story, "services", CHAT, 1) == style


def test_an_act_under_way_and_one_that_is_done_show_their_steps() -> None:
    story = Story()

    assert plain(table(story, "acts")["act-2"]) == [
        "card failover", CHAT, "card lost", "1", "22:13:08 · 12 s", "22:18:08",
        "evidence: done, 1.4 s; front: done, 0.2 s",
    ]  # fmt: skip
    assert plain(table(story, "done")["event-9"]) == [
        "20:44:50", "restart", CHAT, "done", "90 s", "104 s",
        "evidence: done, 1.2 s; stop by the manager: done, 8.1 s; end orphans: was so already; start: done, 74 s",
    ]  # fmt: skip


def test_a_step_counts_as_the_last_word_on_it_says() -> None:
    story = Story()
    story.act_events += [
        event(30, -1, "remediation_step", "", request="act-2", step="front", state="undone", seconds=0.1),
        event(31, 0, "remediation_step", "", request="act-2", step="evidence", state="not_undone"),
    ]  # fmt: skip

    assert table(story, "acts")["act-2"][-1] == "evidence: could not be put back; front: put back"


def test_an_act_that_could_not_be_written_down_is_shown_as_withdrawn() -> None:
    story = Story()
    story.act_events.append(
        event(40, -3, "remediation_withdrawn", "", request="act-3", remediation="drain")
    )

    assert table(story, "done")["event-40"][1:4] == ["drain", CHAT, "withdrawn"]


def test_refusals_pages_and_what_would_be_done_are_told_newest_first() -> None:
    story = Story()
    story.refusal_events += [
        event(21, -20, "remediation_would", "would restart", remediation="restart"),
        event(22, -10, "page_sent", "a person is paged", remediation="restart"),
    ]

    shown = table(story, "refused")
    assert [row[1] for row in shown.values()] == ["a person was paged", "would be done", "refused"]


def test_of_many_acts_and_refusals_the_newest_ten_are_shown() -> None:
    story = Story()
    story.act_events = [
        event(n, n - 100, "remediation_ended", "", request=f"r{n}", status="failed")
        for n in range(30)
    ]
    story.refusal_events = [event(n, n, "remediation_refused", "") for n in range(50, 80)]

    assert list(table(story, "done")) == [f"event-{n}" for n in range(29, 19, -1)]
    assert list(table(story, "refused")) == [f"event-{n}" for n in range(79, 69, -1)]


def test_firing_and_pending_alerts_are_shown_and_the_rest_is_not() -> None:
    story = Story()
    story.alert_docs = [
        alert("A", "critical", "of a card", card=LOST, rank="3"),
        alert("B", "warning", "soon", "pending"),
        alert("C", "warning", "over", "resolved"),
    ]

    assert [row[:4] for row in table(story, "alerts").values()] == [
        ["A", "firing · critical", f"{LOST}, rank=3", "22:12:38 · 42\u00a0s"],
        ["B", "pending · warning", "", "22:12:28 · 52\u00a0s"],
    ]


def test_that_an_act_is_under_way_counts_as_no_alert() -> None:
    story = Story()
    story.alert_docs = [alert("RemediationRunning", "info", "", service=CHAT)]
    story.healing_doc["acts"] = []
    story.status_doc["services"] = story.status_doc["services"][1:]
    story.status_doc["cards"] = story.status_doc["cards"][:2]
    doc = Pages(story).doc("en", "")

    assert (doc["headline"], doc["tone"]) == ("No alert is firing", "good")
    assert ["firing", "0", ""] in doc["tiles"]


def test_without_an_alert_what_is_not_well_is_not_called_well() -> None:
    story = Story()
    story.alert_docs, story.healing_doc["acts"] = [], []
    doc = Pages(story).doc("en", "")

    assert (doc["headline"], doc["tone"]) == ("No alert is firing, but not all is well", "warn")


def test_two_alerts_of_equal_labels_are_two_rows() -> None:
    story = Story()
    story.alert_docs = [alert("A", "warning", "one"), alert("A", "warning", "two")]

    assert [row[-1] for row in table(story, "alerts").values()] == ["one", "two"]


def test_what_holds_healing_back_stands_at_the_top() -> None:
    story = Story()
    story.status_doc |= {
        "observing_because": "the state was lost",
        "journal": {"error": "disk full"},
    }
    story.healing_doc |= {
        "hold_file": True,
        "breaker": "3 acts failed",
        "paused": [{"service": None, "until": None}, {"service": CHAT, "until": at(600)}],
    }

    assert [note[0] for note in Pages(story).doc("en", "")["notes"]] == [
        "Only observing: the state was lost",
        "A hold file stops all acts.",
        "The breaker is open: 3 acts failed",
        "Paused: all services, until resumed",
        f"Paused: {CHAT}, until 22:23:20 UTC",
        "The journal cannot be written: disk full",
    ]


def test_budgets_and_outlets_say_what_is_left_and_what_waits() -> None:
    assert [plain(row) for row in table(Story(), "budgets").values()] == [
        ["servers and cards", "2", "4", "60 min"], ["requests", "19", "20", "60 min"],
    ]  # fmt: skip
    assert table(Story(), "outlets")["elasticsearch"][1:3] == ["down", "1,840"]


def test_an_incident_leads_to_its_report_whatever_it_is_called(node: Served) -> None:
    node.story.incident_docs[0]["incident"] = "a/b&c#1"
    text = ask(node, "/")[2]

    assert 'href="report?incident=a%2Fb%26c%231"' in text
    assert ask(node, "/report?incident=a%2Fb%26c%231")[0] == 200


def test_the_journal_is_not_searched_for_each_who_looks() -> None:
    story = Story()
    looks: list[int] = []
    story.incidents = lambda: looks.append(1) or []  # type: ignore[method-assign, func-returns-value]
    pages = Pages(story)
    for seconds in (0, 5, 10, 15, 20):
        story.status_doc["time"] = at(seconds)
        pages.doc("en", "")

    assert len(looks) == 2


def test_a_daemon_before_its_first_look_has_a_page(tmp_path: Path) -> None:
    pages = Pages(made(tmp_path))

    assert pages.doc("en", "")["headline"] == "Starting"
    assert "The daemon has not finished its first look yet." in pages.page("en", "")
    assert "守护进程尚未完成第一次检查" in pages.page("zh", "")


def test_hostile_text_is_escaped_and_cannot_hide_or_turn_what_follows(node: Served) -> None:
    node.story.status_doc["instance"] = HOSTILE
    node.story.status_doc["cards"][0]["card"] = HOSTILE + '" onload="x'
    node.story.healing_doc["breaker"] = HOSTILE
    node.story.refusal_events[0]["message"] = "\x1b[31m\u202egnp.exe\ttwo\nlines"
    text = ask(node, "/")[2]

    assert re.findall(r"<script[^>]*>", text) == re.findall(
        r'<script src="static/[^"]+" defer>', text
    )
    assert "<img" not in text
    assert "\ufffd[31m\ufffdgnp.exe two lines" in text
    assert '&quot; onload=&quot;x"' in text


def test_the_page_allows_only_this_node_s_own_script_and_style(node: Served) -> None:
    status, headers, text = ask(node, "/")

    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"].split("; ")
    assert policy[:5] == [
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
        "connect-src 'self'",
    ]  # fmt: skip
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|https?://", text)
    assert headers["Cache-Control"] == "no-store"


def test_files_of_the_page_may_be_kept_for_good_under_the_address_that_it_names(
    node: Served,
) -> None:
    named = re.findall(r'(?:href|src)="(static/[^"]+)"', ask(node, "/")[2])
    assert len(named) == 6
    for path in named:
        status, headers, _ = ask(node, "/" + path)
        assert (status, headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
        assert headers["X-Content-Type-Options"] == "nosniff"
    kinds = {ask(node, "/" + path)[1]["Content-Type"].partition(";")[0] for path in named}
    assert kinds == {"text/css", "text/javascript", "image/svg+xml", "text/plain"}

    assert ask(node, "/static/page.js")[1]["Cache-Control"] == "no-cache"
    assert ask(node, "/static/page.js?v=old")[1]["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("name", ["", "none.js", "../routes.py", "..%2froutes.py", "/etc/passwd"])
def test_nothing_but_the_files_of_the_page_is_served(node: Served, name: str) -> None:
    assert ask(node, "/static/" + name)[0] == 404


def test_the_library_that_draws_is_named_with_its_licence(node: Served) -> None:
    assert "MIT License" in ask(node, "/static/uplot-LICENSE.txt")[2]


def test_the_document_has_the_language_that_was_asked_for(node: Served) -> None:
    told = {"Accept-Language": "zh-CN"}
    as_asked = json.loads(ask(node, "/api/v1/page?lang=en", **told)[2])
    as_accepted = json.loads(ask(node, "/api/v1/page", **told)[2])

    assert as_asked["headline"] == "1 act is under way, 3 alerts are firing"
    assert as_accepted["headline"] == "1 个动作正在执行、3 个告警正在触发"


@pytest.mark.parametrize(
    ("asked", "accepted", "lang"),
    [
        ("zh", "en", "zh"),
        ("en", "zh", "en"),
        ("", "", "en"),
        ("fr", "zh-TW", "zh"),
        ("", "de, zh;q=0.4, en;q=0.5", "en"),
        ("", "de, zh;q=0.6, en;q=0.5", "zh"),
        ("", "zh;q=0", "en"),
        ("", "zh;q=high, *", "en"),
        ("", "ZH-Hans-CN", "zh"),
        ("", ",;;q=1,,zh", "zh"),
    ],
)
def test_which_language_a_reader_gets(asked: str, accepted: str, lang: str) -> None:
    assert words.language(asked, accepted) == lang


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (0.04, "0 s"), (9.96, "10 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (172_799, "48 h"), (172_800, "2 d")],
)  # fmt: skip
def test_a_duration_is_short(seconds: float, shown: str) -> None:
    assert words.span(words.words("en"), seconds) == shown.replace(" ", "\u00a0")


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0 %"), (0.0004, "0.0 %"), (0.012, "1.2 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1, "100 %"), ("NaN", ""), (None, "")],
)  # fmt: skip
def test_a_share_is_a_percentage(share: Any, shown: str) -> None:
    assert words.percent(share) == shown.replace(" ", "\u00a0")


def test_a_time_of_another_day_has_its_date() -> None:
    assert words.clock(NOW - 3600, NOW) == "21:13:20"
    assert words.clock(NOW + 7200, NOW) == "2023-11-15 00:13"
    assert words.clock("2023-11-13T22:13:20.000Z", NOW) == "2023-11-13 22:13"
    assert words.clock(None, NOW) == ""


class Noting(dict[str, str]):
    """Translations; notes what was asked for and is not there."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.missing: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self.missing.add(key)
        return super().get(key, default)


def test_all_that_the_page_says_is_said_in_chinese(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noting = Noting(CHINESE)
    monkeypatch.setattr(words, "CHINESE", noting)
    story = Story()
    Pages(story).page("zh", "")
    story.healing_doc |= {"hold_file": True, "breaker": "x", "acts": [], "waiting": [], "cases": [],
                          "paused": [{"service": None, "until": None}, {"service": CHAT, "until": at(9)}]}  # fmt: skip
    story.status_doc |= {"observing_because": "x", "journal": {"error": "x"}}
    story.alert_docs = [alert("A", "info", "x")]
    Pages(story).page("zh", "")
    story.alert_docs = []
    Pages(story).page("zh", "")
    story.status_doc |= {"services": [], "cards": []}
    Pages(story).page("zh", "")
    Pages(made(tmp_path)).page("zh", "")

    assert noting.missing - {""} == set()


def test_every_cause_act_and_step_has_a_chinese_name() -> None:
    names = {name.replace("_", " ") for name in [*CAUSES, *ACTS]} - {"none"}
    sources = [path.read_text() for path in (REPOSITORY / "remediations").rglob("*.py")]
    steps = {name for text in sources for name in re.findall(r'\bStep\(\s*"([^"]+)"', text)}

    assert len(steps) > 10
    assert (names | steps) - CHINESE.keys() == set()


def test_no_translation_lacks_a_place_for_a_value() -> None:
    places = re.compile(r"{\w*}")

    assert [
        text for text, said in CHINESE.items()
        if sorted(places.findall(text)) != sorted(places.findall(said))
    ] == []  # fmt: skip


def test_of_thousands_of_alerts_the_gravest_hundred_are_shown_and_the_rest_counted() -> None:
    story = Story()
    story.alert_docs = [alert(f"W{n}", "warning", "x") for n in range(3000)]
    story.alert_docs += [alert("P", "critical", "soon", "pending"), alert("C", "critical", "now")]
    rows = [*table(story, "alerts").values()]

    assert len(rows) == 101
    assert (rows[0][0], rows[1][0], rows[-1][0]) == ("C", "W0", "… and 2902 more")
    assert Pages(story).doc("en", "")["headline"].endswith("3001 alerts are firing")
    assert len(Pages(story).page("zh", "")) < 200_000


def test_a_text_that_nobody_could_read_to_its_end_is_cut_wherever_it_stands() -> None:
    story = Story()
    endless = "<" * 300_000
    story.alert_docs = [alert(endless, endless, endless, service=endless, rank=endless)]
    story.status_doc["instance"] = story.healing_doc["breaker"] = endless
    story.refusal_events[0]["message"] = story.status_doc["outlets"][0]["error"] = endless

    assert len(Pages(story).page("en", "")) < 200_000


def test_nothing_on_the_page_can_hide_or_turn_what_follows_it() -> None:
    story = Story()
    turning = "a\u202eb\u2066\x1b[31m\x00\x9b"
    story.alert_docs = [alert(turning, turning, turning, service=turning, rank=turning)]
    story.status_doc["instance"] = story.healing_doc["breaker"] = turning
    story.status_doc["services"][0]["service"] = story.status_doc["cards"][0]["card"] = turning
    page = Pages(story).page("en", "")

    assert {c for c in page if not c.isprintable()} == {"\n", "\u00a0"}
