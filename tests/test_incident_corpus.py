"""Every incident of the corpus comes out right, and noise changes no decision."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.incidents import judge, play, read
from vllm_watchdog.watchdog.incidents.collecting import owner
from vllm_watchdog.watchdog.incidents.form import Incident, Stall
from vllm_watchdog.watchdog.incidents.noise import Noise

FILES = sorted((Path(__file__).parent / "incidents").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_incident_comes_out_right(path: Path) -> None:
    incident = read(path)

    assert [text for each in judge(incident, play(incident)) for text in each.problems] == []


def noise_for(incident: Incident, seed: int) -> Noise:
    """Gaps, disorder, doubled lines, and one of the incident's collectors stalled for a minute."""
    rnd = random.Random(f"{incident.name}{seed}")
    names = {owner(series.labels) for series in incident.series} - {"services", "schedules"}
    names |= {f"vllm_log/{log.service}" for log in incident.logs if log.source == "vllm"}
    names |= {f"{log.source}_log" for log in incident.logs if log.source != "vllm"}
    begin = 5.0 * rnd.randrange(max(1, int(incident.until / 5)))
    stalls = (
        tuple(Stall(name, begin, begin + 60.0) for name in rnd.sample(sorted(names), 1))
        if names
        else ()
    )
    return Noise(seed, gaps=0.03, doubles=0.5, disorder=True, stalls=stalls)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_noise_makes_the_decision_later_or_none_and_never_another(path: Path) -> None:
    incident = read(path)
    noise = noise_for(incident, 1)
    played = play(incident, noise)

    got = {each.service: played.act(each.service)[0] for each in incident.expected}
    wanted = {each.service: each.act for each in incident.expected if each.act is not None}
    assert {
        name: got[name] for name in wanted if got[name] not in ("nothing", wanted[name])
    } == {}, noise


def test_the_corpus_is_large_and_asks_for_nothing_often_enough() -> None:
    incidents = [read(path) for path in FILES]
    idle = [one for one in incidents if all(each.act == "nothing" for each in one.expected)]

    assert len(incidents) >= 80
    assert len(idle) >= 25
