"""Peers: reachability, the estimate of a round trip, and when it counts as high."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.peers import Peers, judged, quartile
from vllm_watchdog.watchdog.errors import NoData, SourceError, Temporary
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample
from vllm_watchdog.watchdog.sockets import Answer, RealSockets
from vllm_watchdog.watchdog.system import System

OPEN, REFUSED, LATE = Answer(True, "open"), Answer(True, "refused"), Answer(False, "timeout")


def took(microseconds: float) -> Answer:
    return Answer(True, "open", microseconds / 1e6)


@dataclass
class FakeSockets:
    """Answers by address: a list is used up one by one, its last stays. ``own``: the loopback's."""

    tcp: dict[str, list[Answer]] = field(default_factory=dict)
    icmp: dict[str, list[Answer]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    own: float = 0.0
    clock: VirtualClock | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)

    def addresses(self, host: str, timeout: float) -> list[str]:
        if host in self.names:
            return self.names[host]
        if host[0].isalpha():
            raise Temporary(f"{host}: no such name")
        return [host]

    def connect(self, targets: Sequence[tuple[str, int]], timeout: float) -> list[Answer]:
        return [self._next("tcp", self.tcp, address, timeout) for address, _ in targets]

    def echo(self, address: str, timeout: float) -> Answer:
        return self._next("icmp", self.icmp, address, timeout)

    def loopback(self, count: int) -> list[float]:
        return [self.own / 1e6] * count

    def _next(
        self, way: str, table: dict[str, list[Answer]], address: str, timeout: float
    ) -> Answer:
        self.asked.append((way, address))
        answers = table.get(address, [LATE])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.reason == "timeout" and self.clock:
            self.clock.advance(timeout)
        return answer


def world(sockets: FakeSockets) -> System:
    clock = VirtualClock()
    sockets.clock = clock
    return replace(fake_system(clock=clock), sockets=sockets)


def run(system: System, peers: Peers) -> dict[tuple[str, str], float]:
    """One window as the host makes it: series by name and peer."""
    found = {}
    for item in peers.collect(system):
        if isinstance(item, Checkpoint):
            system.checkpoints.put("peers", item.doc)
        elif isinstance(item, Sample):
            found[item.name, dict(item.labels)["peer"]] = item.value
    return found


NODE_2 = Peers(peers={"node-2": ("10.0.0.2", 9100)})


def test_the_estimate_is_the_lower_quartile_less_the_loopback() -> None:
    times = [took(n) for n in (999, *range(100, 2100, 100))]  # the first only tells of reaching
    system = world(FakeSockets(tcp={"10.0.0.2": times}, own=20.0))

    found = run(system, NODE_2)

    assert found == {
        ("peer_reachable", "node-2"): 1.0,
        ("peer_probes_lost_ratio", "node-2"): 0.0,
        ("peer_round_trip_seconds", "node-2"): pytest.approx(480e-6),  # the 5th of 20 is 500
    }


def test_an_estimate_is_never_negative() -> None:
    system = world(FakeSockets(tcp={"10.0.0.2": [took(5)]}, own=20.0))

    assert run(system, NODE_2)["peer_round_trip_seconds", "node-2"] == 0.0


def test_a_quartile_is_a_time_that_was_measured() -> None:
    assert quartile([4.0, 3.0, 2.0, 1.0, 0.0]) == 1.0
    assert quartile([7.0]) == 7.0


def test_a_refusal_is_an_answer_and_the_time_comes_from_icmp() -> None:
    sockets = FakeSockets(
        tcp={"10.0.0.2": [REFUSED]}, icmp={"10.0.0.2": [took(150)], "127.0.0.1": [took(50)]}
    )

    found = run(world(sockets), NODE_2)

    assert found["peer_reachable", "node-2"] == 1.0
    assert found["peer_round_trip_seconds", "node-2"] == pytest.approx(100e-6)


def test_a_peer_that_can_only_be_reached_has_no_round_trip() -> None:
    not_permitted = Answer(None, "not_permitted")
    sockets = FakeSockets(tcp={"10.0.0.2": [REFUSED]}, icmp={"10.0.0.2": [not_permitted]})

    assert run(world(sockets), NODE_2) == {("peer_reachable", "node-2"): 1.0}


@pytest.mark.parametrize("answer", [LATE, Answer(False, "no_route")])
def test_silence_and_no_route_are_unreachable_and_have_no_round_trip(answer: Answer) -> None:
    system = world(FakeSockets(tcp={"10.0.0.2": [answer]}))

    assert run(system, NODE_2) == {("peer_reachable", "node-2"): 0.0}


def test_what_this_node_itself_refuses_says_nothing_of_the_peer() -> None:
    system = world(FakeSockets(tcp={"10.0.0.2": [Answer(None, "not_permitted")]}))

    assert run(system, NODE_2) == {}


def test_any_address_of_a_name_that_answers_is_enough() -> None:
    sockets = FakeSockets(
        names={"node-2.lan": ["fd00::2", "10.0.0.2"]},
        tcp={"fd00::2": [LATE], "10.0.0.2": [took(90)]},
    )

    found = run(world(sockets), Peers(peers={"node-2": ("node-2.lan", 9100)}))

    assert found["peer_reachable", "node-2"] == 1.0
    assert found["peer_round_trip_seconds", "node-2"] == pytest.approx(90e-6)


def test_a_name_that_cannot_be_resolved_is_told_once_and_hides_no_other_peer() -> None:
    peers = Peers(peers={"node-2": ("10.0.0.2", 9100), "lost": ("lost.lan", 9100)})
    system = world(FakeSockets(tcp={"10.0.0.2": [took(90)]}))

    told = []
    for _ in range(3):
        items = list(peers.collect(system))
        told += [item.message for item in items if isinstance(item, Event)]
        for item in items:
            if isinstance(item, Checkpoint):
                system.checkpoints.put("peers", item.doc)

    assert told == ["peer lost cannot be asked: lost.lan: no such name"]
    assert ("peer_reachable", "node-2") in run(system, peers)


def test_names_that_all_fail_are_the_sources_failure() -> None:
    with pytest.raises(SourceError, match=r"lost\.lan: no such name"):
        run(world(FakeSockets()), Peers(peers={"lost": ("lost.lan", 9100)}))


def test_no_peers_are_no_data() -> None:
    with pytest.raises(NoData):
        run(world(FakeSockets()), Peers())


def test_probes_of_a_peer_that_falls_silent_end_soon() -> None:
    sockets = FakeSockets(tcp={"10.0.0.2": [OPEN, LATE]})
    system = world(sockets)
    begin = system.clock.mono()

    found = run(system, NODE_2)

    assert found == {("peer_reachable", "node-2"): 1.0}
    assert system.clock.mono() - begin == 2.0  # two SYNs and two echoes of 0.5 s


def test_all_probes_together_keep_to_the_budget() -> None:
    answers = [took(90), *[took(90), LATE] * 40]
    peers = Peers(peers={f"node-{n}": (f"10.0.0.{n}", 9100) for n in range(2, 6)})
    sockets = FakeSockets(tcp={f"10.0.0.{n}": list(answers) for n in range(2, 6)})
    system = world(sockets)
    begin = system.clock.mono()

    run(system, peers)

    assert system.clock.mono() - begin <= 4.5


def test_lost_probes_are_counted_and_half_of_them_suffice() -> None:
    answers = [took(1), *[took(100)] * 11, *[LATE] * 4, *[took(100)] * 5]

    found = run(world(FakeSockets(tcp={"10.0.0.2": answers})), NODE_2)

    assert found["peer_probes_lost_ratio", "node-2"] == 0.2
    assert found["peer_round_trip_seconds", "node-2"] == pytest.approx(100e-6)


def test_an_ssh_server_is_asked_once_a_window_where_icmp_is_permitted() -> None:
    sockets = FakeSockets(tcp={"10.0.0.2": [took(90)]}, icmp={"10.0.0.2": [took(95)]})

    run(world(sockets), Peers(peers={"node-2": ("10.0.0.2", 22)}))

    assert sockets.asked.count(("tcp", "10.0.0.2")) == 1
    assert sockets.asked.count(("icmp", "10.0.0.2")) == 20


# ---- the verdict ----


def verdicts(*microseconds: float | None) -> list[float | None]:
    """``peer_latency_high`` after each window; None: no answer in that window."""
    sockets = FakeSockets()
    system = world(sockets)
    found = []
    for value in microseconds:
        sockets.tcp["10.0.0.2"] = [LATE if value is None else took(value)]
        found.append(run(system, NODE_2).get(("peer_latency_high", "node-2")))
    return found


def test_the_first_verdict_needs_two_windows_of_one_side() -> None:
    assert verdicts(140, 140) == [None, 0]
    assert verdicts(240, 240) == [None, 1]
    assert verdicts(190, 210, 210) == [None, None, 1]


def test_two_windows_in_a_row_beyond_the_dead_band_change_it() -> None:
    assert verdicts(140, 140, 300, 140, 300, 300, 140, 140)[2:] == [0, 0, 0, 1, 1, 0]


def test_a_window_within_the_dead_band_does_not_help_to_change_it() -> None:
    assert verdicts(140, 140, 300, 225, 300, 225)[2:] == [0, 0, 0, 0]


def test_a_minute_within_the_dead_band_on_the_other_side_changes_it() -> None:
    assert verdicts(140, 140, *[220] * 12)[2:] == [*[0] * 11, 1]


def test_windows_that_alternate_around_the_threshold_change_nothing() -> None:
    assert set(verdicts(140, 140, *[195, 205] * 15)[2:]) == {0}


def test_a_gap_begins_the_count_anew_and_keeps_the_verdict() -> None:
    assert verdicts(140, 140, 300, None, 300, 300)[2:] == [0, None, 0, 1]


def test_a_count_does_not_grow_without_end() -> None:
    state: dict[str, object] = {}
    for _ in range(50):
        state = judged(state, 0.0001, 0.0002, 0.15)

    assert state == {"high": False, "side": False, "run": 12, "far": 2}


def test_a_steady_verdict_writes_no_checkpoint() -> None:
    system = world(FakeSockets(tcp={"10.0.0.2": [took(100)]}))
    for _ in range(12):
        run(system, NODE_2)

    assert [item for item in NODE_2.collect(system) if isinstance(item, Checkpoint)] == []


# ---- the door itself ----


def test_real_connections_are_timed_by_the_kernel_and_leave_nothing_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))

    times = RealSockets().loopback(20)

    assert len(times) == 20
    assert 0 < min(times) < 0.1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_real_open_port_a_closed_one_and_a_silent_one_are_told_apart() -> None:
    with socket.socket() as listener, socket.socket() as closed, socket.socket() as full:
        for one in (listener, closed, full):
            one.bind(("127.0.0.1", 0))
        listener.listen(4)
        full.listen(0)  # its queue takes one; further SYNs are dropped
        targets = [("127.0.0.1", one.getsockname()[1]) for one in (listener, closed, full)]
        filler = socket.create_connection(targets[2], timeout=5)

        answers = RealSockets().connect(targets, 0.2)
        filler.close()

    assert [answer.reason for answer in answers] == ["open", "refused", "timeout"]
    assert [answer.reached for answer in answers] == [True, True, False]


def test_a_server_sees_a_reset_and_no_data() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4)

        RealSockets().connect([("127.0.0.1", listener.getsockname()[1])], 1.0)
        accepted, _ = listener.accept()

        with accepted, pytest.raises(ConnectionResetError):
            accepted.recv(1)


def test_a_real_echo_is_stamped_by_the_kernel() -> None:
    sockets = RealSockets()

    for address in ("127.0.0.1", "::1"):
        answer = sockets.echo(address, 1.0)
        if answer.reason == "not_permitted":
            pytest.skip("echoes are not permitted here")
        if address == "::1" and not answer.reached:
            pytest.skip("no IPv6 here")
        assert answer.round_trip is not None
        assert 0 < answer.round_trip < 0.1


def test_an_address_needs_no_resolver() -> None:
    assert RealSockets().addresses("[fd00::2]", 0.0) == ["fd00::2"]
