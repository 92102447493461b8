"""A report as a file: all of it is inside, and no text from outside is more than text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report import story
from vllm_watchdog.watchdog.report import (
    Incident,
    Report,
    StateSource,
    compose,
    html,
    markdown,
)
from vllm_watchdog.watchdog.report.model import Plot
from vllm_watchdog.watchdog.report.svg import picture
from vllm_watchdog.watchdog.report.words import after, figure, outcome, span, visible

VOID = {"meta", "link", "img", "br"}
ACTIVE = {"script", "iframe", "object", "embed", "form", "input", "img", "base", "audio", "video"}


class Page(HTMLParser):
    """Which elements a file has, which addresses they name, whether all are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.addresses: set[str] = set()
        self.handlers: set[str] = set()
        self.heads: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "action", "xlink:href", "srcset", "data"):
                self.addresses.add(value or "")
            if name.startswith("on") or (name == "style"):
                self.handlers.add(name)
        if tag not in VOID and tag not in ("path", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "rect"):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.heads.append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    source = StateSource(story.state(tmp_path_factory.mktemp("s")), '"><script>node')
    return compose(source, source.incidents()[0], "1", story.START + 300)


def test_the_file_has_each_part_in_order_and_all_elements_are_closed(report: Report) -> None:
    page = Page(html(report))

    assert page.open == []
    assert page.heads == [
        "Diagnosis", "Acts", "What clients saw", "Signals", "Timeline", "Alerts",
        "Not done, and why", "Log",
    ]  # fmt: skip


def test_the_file_asks_for_nothing_and_runs_nothing(report: Report) -> None:
    text = html(report)
    page = Page(text)

    assert page.elements & ACTIVE == set()
    assert page.handlers == set()
    assert {each for each in page.addresses if not each.startswith("#")} == {"data:,"}
    assert "default-src 'none'" in text
    assert re.findall(r"url\(|@import", text) == []


def test_a_hostile_log_line_is_shown_as_it_was_and_as_text_alone(report: Report) -> None:
    text = html(report)

    assert "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert r"\x1b[31m\x202egnp.exe" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_every_colour_is_there_for_light_and_dark(report: Report) -> None:
    light, dark = re.findall(r":root \{([^}]*)\}", html(report))
    names = [set(re.findall(r"--[\w]+(?=:)", each)) for each in (light, dark)]

    assert names[0] == names[1] != set()


def test_each_plot_is_told_in_words_to_those_who_do_not_see_it(report: Report) -> None:
    assert (
        'role="img" aria-label="Card temperature: 0000:53:00 from 48 °C to 73 °C, at the end 73 °C"'
        in html(report)
    )


def test_markdown_has_the_same_parts_and_no_markup_from_outside(report: Report) -> None:
    text = markdown(report)

    assert re.findall(r"^## (.*)$", text, re.M) == [
        "Diagnosis", "Acts", "What clients saw", "Signals", "Timeline", "Alerts",
        "Not done, and why", "Log",
    ]  # fmt: skip
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert "<" not in outside_code
    assert "](" not in outside_code
    assert "\x1b" not in text


def test_each_row_of_a_markdown_table_has_the_cells_of_its_head(report: Report) -> None:
    cells = 0
    for line in markdown(report).splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line))
        if not line.startswith("|"):
            cells = 0
        elif not cells:
            cells = bars
        assert not cells or bars == cells, line


def test_a_recording_without_an_incident_is_told_as_a_whole(tmp_path: Path) -> None:
    source = StateSource(story.state(tmp_path), "n")
    whole = Incident(
        "recording", "", "", (), "none", "", "", "", story.START, story.START + 400, "no incident"
    )

    found = compose(source, whole, "1", 0)

    assert (found.begin, found.end) == (whole.opened, whole.closed)
    assert "<h1>Recording</h1>" in html(found)


def test_a_line_is_broken_where_values_are_missing_and_yes_and_no_are_steps() -> None:
    points = ((0.0, 1.0), (5.0, 0.0), (20.0, 1.0))
    plot = Plot("p", "P", "flag", "service", 5.0, (("a", points),))

    (path,) = re.findall(r'class="line c0" d="([^"]*)"', picture(plot, 0.0, 20.0, ()))

    assert re.sub(r"[\d. ]", "", path) == "MHVM"


@pytest.mark.parametrize(
    ("low", "high", "first", "last"),
    [(285.0, 285.0, "0", "300"), (40.0, 41.0, "0", "60"), (70.0, 99.0, "70", "100"), (0.0, 0.0, "0", "1")],
)  # fmt: skip
def test_the_axis_has_round_values_and_hides_no_zero_for_a_flat_line(
    low: float, high: float, first: str, last: str
) -> None:
    plot = Plot("p", "P", "number", "service", 5.0, (("a", ((0.0, low), (5.0, high))),))

    labels = re.findall(r'text-anchor="end">([^<]*)<', picture(plot, 0.0, 5.0, ()))

    assert (labels[0], labels[-1]) == (first, last)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (span(0.004), "under 0.1 s"), (span(0), "0 s"), (span(1.5), "1.5 s"), (span(185), "3 min 5 s"),
        (span(7800), "2 h 10 min"), (after(7, 10), "-3 s"), (figure(0.25, "ratio"), "25 %"),
        (figure(0.02, "seconds"), "20 ms"), (outcome("found"), "was so already"),
        (visible("a\u202eb\x00"), r"a\x202eb\x00"), (visible("警告 é"), "警告 é"),
    ],
)  # fmt: skip
def test_figures_and_words_are_as_people_write_them(said: str, words: str) -> None:
    assert said == words
