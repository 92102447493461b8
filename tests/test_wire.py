"""Values of the model as JSON and back."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watchdog.watchdog.model import (
    Alert,
    Batch,
    Checkpoint,
    Command,
    Event,
    Inputs,
    Outcome,
    Page,
    Request,
    Tick,
    Transition,
    labelset,
)
from vllm_watchdog.watchdog.wire import (
    InputsReader,
    InputsWriter,
    alert_doc,
    moment,
    number,
    transition_doc,
)

KEYS = (labelset({"card": "a"}, "m"), labelset({"card": "b"}, "m"))
ALERT = Alert(
    "g/A", labelset({"alertname": "A", "service": "s"}), "firing", 10.0, 2.5, fired_at=20.0
)


def through(*ticks: tuple[Tick, Inputs]) -> list[tuple[Tick, Inputs]]:
    writer, reader = InputsWriter(), InputsReader()
    return [reader.read(writer.line(tick, inputs)) for tick, inputs in ticks]


def test_inputs_come_back_as_they_were() -> None:
    batch = Batch(
        "c",
        (Page(KEYS, (1.5, -0.0)),),
        (Event("k", "m", KEYS[0], {"a": [1, None]}, "critical", True, 3.5),),
        0.25,
        None,
        False,
        False,
        labelset({"service": "s"}),
        Checkpoint({"at": 1}),
    )
    failed = Batch("d", duration=10.0, error="no answer", stalled=True)
    still = Batch("e", error="rests", resting=True)
    outcome = Outcome(Request("restart", ALERT, 2, "s", "id-1"), "done", "ok", 3.0)
    inputs = Inputs((batch, failed, still), (outcome,), (Command("pause", {"for": 60}, "root"),))

    ((tick, read),) = through((Tick(7, 1.25, 1000.5, True), inputs))

    assert (tick, read.batches, read.commands) == (
        Tick(7, 1.25, 1000.5, True),
        inputs.batches,
        inputs.commands,
    )
    assert read.outcomes[0].request.alert == ALERT


def test_keys_that_repeat_are_written_once_and_read_as_the_same_object() -> None:
    inputs = [Inputs((Batch("c", (Page(KEYS, (float(n), 0.0)),)),)) for n in range(3)]
    writer = InputsWriter()
    lines = [writer.line(Tick(n, float(n), float(n)), i) for n, i in enumerate(inputs)]
    reader = InputsReader()
    pages = [reader.read(line)[1].batches[0].pages[0] for line in lines]

    assert ["keys" in line for line in lines] == [True, False, False]
    assert pages[0].keys is pages[2].keys
    assert pages[2].values == (2.0, 0.0)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_value_survives_bit_for_bit(value: float) -> None:
    text = json.dumps(number(value), allow_nan=False)

    read = float(json.loads(text))
    assert (read == value and math.copysign(1, read) == math.copysign(1, value)) or (
        value != value and read != read
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, 1),
        (0.5, 0.5),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (1e20, 1e20),
    ],
)
def test_numbers_that_json_lacks_are_strings(value: float, expected: object) -> None:
    assert number(value) == expected


def test_moments_are_rfc_3339_with_milliseconds() -> None:
    assert (moment(0.0), moment(1_700_000_000.9996), moment(None)) == (
        "1970-01-01T00:00:00.000Z",
        "2023-11-14T22:13:21.000Z",
        None,
    )


def test_an_alert_is_shown_with_service_and_times() -> None:
    assert alert_doc(ALERT) == {
        "alert": "A",
        "labels": {"alertname": "A", "service": "s"},
        "annotations": {},
        "state": "firing",
        "active_at": "1970-01-01T00:00:10.000Z",
        "fired_at": "1970-01-01T00:00:20.000Z",
        "value": 2.5,
        "service": "s",
    }


def test_a_transition_is_shown_with_its_tick() -> None:
    doc = transition_doc(Tick(3, 0.0, 60.0), Transition(ALERT, "pending", "firing"))

    assert (doc["tick"], doc["time"], doc["before"], doc["after"], doc["value"]) == (
        3,
        "1970-01-01T00:01:00.000Z",
        "pending",
        "firing",
        2.5,
    )
