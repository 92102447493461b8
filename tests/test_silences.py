"""Silences: read from Alertmanager, held by the guard, kept while nobody answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.watchdog.cases.commands import take
from vllm_watchdog.watchdog.errors import HttpError
from vllm_watchdog.watchdog.guard import Guard
from vllm_watchdog.watchdog.guard.silences import MOST, Silence, read_silence
from vllm_watchdog.watchdog.model import Alert, Command, Inputs, Tick, labelset
from vllm_watchdog.watchdog.outlets.silences import Silences
from vllm_watchdog.watchdog.system import Response
from vllm_watchdog.watchdog.wire import InputsReader, InputsWriter

NOW = 1_700_000_000.0
ENDS = "2023-11-14T23:13:20.000Z"  # NOW + 3600
ONE, TWO = "http://one:9093", "http://two:9093"


def alert(**labels: str) -> Alert:
    names = labelset({"alertname": "EngineDead", "service": "chat", "instance": "node-1", **labels})
    return Alert("serving/EngineDead", names, "firing", NOW, 1.0, fired_at=NOW)


def matcher(name: str, value: str, *, equal: bool = True, regex: bool = False) -> dict[str, Any]:
    return {"name": name, "value": value, "isEqual": equal, "isRegex": regex}


def silence(*matchers: dict[str, Any], state: str = "active", name: str = "a") -> dict[str, Any]:
    return {
        "id": name,
        "status": {"state": state},
        "matchers": list(matchers),
        "startsAt": "2023-11-14T22:00:00.000Z",
        "endsAt": ENDS,
        "updatedAt": "2023-11-14T22:00:00.000Z",
        "createdBy": "ann",
        "comment": "works on it",
    }


class Http:
    """Two instances, each with a list of silences, or away."""

    def __init__(self, one: Any = (), two: Any = ()) -> None:
        self.says = {ONE: one, TWO: two}

    def request(self, method: str, url: str, **_: Any) -> Response:
        base, _, path = url.partition("/api")
        assert (method, path) == ("GET", "/v2/silences")
        said = self.says[base]
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, Response) else Response(200, json.dumps(said).encode())


class Bench:
    """A reader of silences and the guard that hears of them."""

    def __init__(self, *one: dict[str, Any], two: Any = ()) -> None:
        self.http = Http(list(one), two)
        self.told: list[Command] = []
        self.log: list[str] = []
        self.guard = Guard()
        self.events: list[str] = []
        system = replace(fake_system(clock=VirtualClock(NOW)), http=self.http)
        self.reader = Silences(
            [ONE, TWO],
            system,
            {"evaluator": "node", "zone": "a"},
            {"instance": "node-1"},
            self.told.append,
            lambda text, **_: self.log.append(text),
        )

    def look(self) -> None:
        before = len(self.told)
        self.reader.look()
        for command in self.told[before:]:
            self.events += [event.message for event in take(self.guard, command, "", {}, NOW)]

    def silenced(self, found: Alert, now: float = NOW) -> bool:
        return any(each.covers(found, now) for each in self.guard.silences)


@pytest.mark.parametrize(
    ("matchers", "covered"),
    [
        ([matcher("alertname", "EngineDead")], True),
        ([matcher("alertname", "EngineDead"), matcher("service", "other")], False),
        ([matcher("alertname", "Engine.*", regex=True)], True),
        ([matcher("alertname", "Engine", regex=True)], False),  # anchored
        ([matcher("alertname", "Card.*", equal=False, regex=True)], True),
        ([matcher("service", "chat", equal=False)], False),
        ([matcher("team", "", equal=True)], True),  # an absent label is empty
        ([matcher("evaluator", "node"), matcher("zone", "a|b", regex=True)], True),
        ([matcher("evaluator", "prometheus")], False),
    ],
)
def test_a_silence_covers_what_alertmanager_says_it_covers(
    matchers: list[dict[str, Any]], covered: bool
) -> None:
    bench = Bench(silence(*matchers))
    bench.look()

    assert covered == bench.silenced(alert())


def test_a_silence_of_an_instance_before_negative_matchers_is_read() -> None:
    old = {"name": "alertname", "value": "EngineDead", "isRegex": False}
    bench = Bench(silence(old))
    bench.look()

    assert bench.silenced(alert())


def test_a_silence_ends_at_its_end() -> None:
    bench = Bench(silence(matcher("alertname", "EngineDead")))
    bench.look()

    assert (
        bench.silenced(alert(), NOW + 3599),
        bench.silenced(alert(), NOW + 3600),
    ) == (True, False)


@pytest.mark.parametrize("state", ["expired", "pending"])
def test_a_silence_that_is_not_active_is_passed_over(state: str) -> None:
    bench = Bench(silence(matcher("alertname", "EngineDead"), state=state))
    bench.look()

    assert bench.guard.silences == []


def test_a_silence_of_another_node_is_passed_over() -> None:
    bench = Bench(silence(matcher("instance", "node-2")))
    bench.look()

    assert bench.guard.silences == []


def test_only_a_change_is_told() -> None:
    bench = Bench(silence(matcher("alertname", "EngineDead")))
    bench.look()
    bench.look()

    assert [command.verb for command in bench.told] == ["silences"]
    assert bench.events == [
        "Alertmanager: silenced: alertname=EngineDead",
    ]


def test_a_silence_that_somebody_ended_is_ended_here_too() -> None:
    bench = Bench(silence(matcher("alertname", "EngineDead")))
    bench.look()
    bench.http.says[ONE] = [silence(matcher("alertname", "EngineDead"), state="expired")]
    bench.look()

    assert not bench.silenced(alert())
    assert bench.events[-1] == "Alertmanager: silenced no longer: alertname=EngineDead"


def test_the_known_silences_hold_while_no_instance_answers() -> None:
    bench = Bench(silence(matcher("alertname", "EngineDead")))
    bench.look()
    away = HttpError("refused", "refused")
    bench.http.says = {ONE: away, TWO: away}
    bench.look()

    assert bench.silenced(alert())
    assert len(bench.log) == 1


@pytest.mark.parametrize(
    "answer", [Response(500, b""), Response(200, b"<html>"), Response(200, b'{"a": 1}')]
)
def test_an_instance_that_answers_rubbish_counts_as_away(answer: Response) -> None:
    bench = Bench(two=[silence(matcher("alertname", "EngineDead"))])
    bench.http.says[ONE] = answer
    bench.look()

    assert bench.silenced(alert())


def test_silences_of_all_instances_that_answer_count() -> None:
    first = silence(matcher("alertname", "EngineDead"), name="a")
    bench = Bench(first, two=[silence(matcher("alertname", "CardLost"), name="b"), first])
    bench.look()

    assert {"a", "b"} == {each.id for each in bench.guard.silences}


def test_no_more_silences_are_kept_than_a_guard_can_hold() -> None:
    many = [silence(matcher("alertname", f"A{i}"), name=str(i)) for i in range(MOST + 50)]
    bench = Bench(*many)
    bench.look()

    assert len(bench.guard.silences) == MOST


def test_a_pattern_that_cannot_be_used_is_passed_over() -> None:
    bench = Bench(silence(matcher("alertname", "(", regex=True)))
    bench.look()

    assert bench.guard.silences == []


def test_a_persons_silences_and_alertmanagers_do_not_end_each_other() -> None:
    bench = Bench(silence(matcher("alertname", "EngineDead")))
    bench.look()
    take(bench.guard, Command("silence", {"alert": "CardLost", "for": 60}), "", {}, NOW)
    take(bench.guard, Command("unsilence", {}), "", {}, NOW)

    assert [each.source for each in bench.guard.silences] == ["alertmanager"]


def test_silences_survive_a_restart() -> None:
    bench = Bench(silence(matcher("alertname", "Engine.*", regex=True)))
    bench.look()
    again = Guard()
    again.restore(json.loads(json.dumps(bench.guard.dump())))

    assert again.silences == bench.guard.silences


def test_what_is_told_is_the_same_from_a_recording() -> None:
    bench = Bench(silence(matcher("alertname", "Engine.*", regex=True)))
    bench.look()
    tick, inputs = Tick(1, 1.0, NOW), Inputs(commands=tuple(bench.told))
    line = InputsWriter().line(tick, inputs)

    assert (tick, inputs) == InputsReader().read(line)


@pytest.mark.parametrize(
    "args",
    [
        {"source": "alertmanager", "silences": 3},
        {"source": "alertmanager", "silences": [3, {}, {"matchers": [[1]]}]},
        {"matchers": [["a"]]},
        {"id": "x", "matchers": "abc"},
    ],
)
def test_a_command_of_another_form_silences_nothing(args: dict[str, Any]) -> None:
    guard = Guard()
    for verb in ("silence", "silences", "unsilence"):
        take(guard, Command(verb, args), "", {}, NOW)

    assert guard.silences == []


@pytest.mark.parametrize(
    "doc", [None, [], {"matchers": 3}, {"matchers": [["a", "~", "b"]]}, {"matchers": [["a"]]}]
)
def test_what_is_no_silence_is_none(doc: Any) -> None:
    assert read_silence(doc) is None


def test_a_hold_of_one_service_covers_its_cards_alerts_too() -> None:
    hold = Silence((("service", "=", "chat"),), source="webhook", id="f")
    card = Alert("g/CardLost", labelset({"alertname": "CardLost"}), "firing", NOW, 1.0)

    assert (hold.covers(card, NOW, "chat"), hold.covers(card, NOW, "other")) == (True, False)


def test_a_source_that_fills_its_room_pushes_nobody_s_silences_out() -> None:
    guard = Guard()

    def ask(number: int, source: str) -> list[str]:
        args = {"id": str(number), "source": source, "matchers": [["alertname", "=", "A"]]}
        told = take(guard, Command("silence", args, source), "", {}, NOW)
        return [event.kind for event in told]

    ask(1, "ann")
    told = [ask(number, "webhook") for number in range(MOST + 2)]

    assert told[MOST - 1 :] == [["alert_silenced"], ["silence_refused"], ["silence_refused"]]
    kept = [(each.source, each.id) for each in guard.silences]
    assert kept == [("ann", "1"), *(("webhook", str(number)) for number in range(MOST))]
