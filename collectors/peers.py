"""Round trips to other nodes, to the microsecond, and apart from that whether they answer at all.

Each window sends a handful of SYNs (or ICMP echoes), lets the kernel time them, and takes the lower
quartile: the network's own time, not that of a busy CPU. What this node itself takes is measured on
its loopback and taken off. A connection is broken off at once and carries no data; the server there
may still log it, so a peer's port should belong to one that does not mind. An SSH server does: it
starts a process for each, and newer ones shut out whoever does that often. Port 22 is therefore
asked once a window, and timed by ICMP where that is permitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..watchdog.contracts import Yield
from ..watchdog.errors import NoData, SourceError, Temporary
from ..watchdog.model import Checkpoint, Event, Sample
from ..watchdog.sockets import Answer, Sockets
from ..watchdog.system import System

Way = Literal["tcp", "icmp"]

LOOPBACK = "127.0.0.1"
SSH = 22
PROBE_TIMEOUT = 0.5  # seconds for one of a window's probes; reaching has its own
LOST = 2  # first probes without an answer after which a way of asking is given up
MOST_LOST = 5  # of a window; then the peer is left alone, so that the others get their turn
ENOUGH = 0.5  # share of the probes that must have come back for an estimate
WINDOWS = 2  # windows in a row beyond the dead band that change the verdict
NEAR_WINDOWS = 12  # windows in a row on one side but within the dead band that do so too


@dataclass(slots=True)
class Window:
    """One peer's probes of this round."""

    peer: str
    address: str
    port: int
    ways: list[Way]
    times: list[float] = field(default_factory=list)
    asked: int = 0
    lost: int = 0

    @property
    def way(self) -> Way | None:
        """How to ask; None when no way is left."""
        return self.ways[0] if self.ways else None

    def take(self, answer: Answer) -> None:
        """Count an answer; turn to the next way where this one gives nothing."""
        self.asked += 1
        if answer.round_trip is not None:
            self.times.append(answer.round_trip)
            return
        self.lost += 1
        if self.lost >= LOST and not self.times:
            self.ways.pop(0)
            self.asked = self.lost = 0


@dataclass(frozen=True, slots=True)
class Peers:
    """Measures each of ``peers`` (name → host, TCP port) in turn.

    Series: ``peer_reachable{peer}`` 1 (its kernel answered, be it by a refusal) or 0 (no answer, no
    route), ``peer_round_trip_seconds{peer}`` (lower quartile of ``probes``, loopback taken off),
    ``peer_probes_lost_ratio{peer}``, ``peer_latency_high{peer}`` 1 or 0: above ``threshold``
    seconds, changed only by two windows in a row that lie more than ``band`` beyond it (or by a
    minute of windows that lie nearer). A peer whose name cannot be resolved has no series.
    """

    peers: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    probes: int = 20
    threshold: float = 0.0002
    band: float = 0.15
    reach: float = 2.5  # seconds: long enough for the kernel to repeat a lost SYN once
    budget: float = 4.0  # seconds for the probes of all peers together
    interval: float = 5.0
    timeout: float = 10.0
    name: str = field(default="peers", init=False)

    @property
    def instance(self) -> str:
        """The owner of the series."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides the series' own."""
        return {}

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield what each peer shows. Raises NoData without peers, SourceError where no name of
        any peer could be resolved."""
        if not self.peers:
            raise NoData("no peers are configured")
        before = system.checkpoints.get(self.instance) or {}
        addresses, problems = self._resolved(system)
        windows: list[Window] = []
        for peer, answer, address in self._reached(system.sockets, addresses):
            if answer.reached is None:
                problems[peer] = f"asking is refused by this node ({answer.reason})"
                continue
            yield Sample("peer_reachable", float(answer.reached), (("peer", peer),))
            if answer.reached:
                port = self.peers[peer][1]
                windows.append(Window(peer, address, port, _ways(answer, port)))
        self._probe(system, windows)
        verdicts = dict(before.get("verdicts", {}))
        yield from self._estimates(system.sockets, windows, verdicts)
        told = before.get("problems", {})
        yield from (_problem(peer, text) for peer, text in problems.items() if peer not in told)
        doc = {"verdicts": {p: verdicts[p] for p in verdicts if p in self.peers}}
        doc["problems"] = problems
        if doc != before:
            yield Checkpoint(doc)

    def _resolved(self, system: System) -> tuple[dict[str, list[str]], dict[str, str]]:
        addresses: dict[str, list[str]] = {}
        problems: dict[str, str] = {}
        deadline = system.clock.mono() + self.reach
        for peer, (host, _) in self.peers.items():
            left = max(deadline - system.clock.mono(), 0.05)
            try:
                addresses[peer] = system.sockets.addresses(host, left)
            except Temporary as error:
                problems[peer] = str(error)
        if not addresses:
            raise SourceError("; ".join(problems.values()))
        return addresses, problems

    def _reached(
        self, sockets: Sockets, addresses: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, Answer, str]]:
        """Each peer's best answer of all its addresses, all asked at once."""
        targets = [(p, a, self.peers[p][1]) for p, found in addresses.items() for a in found]
        answers = sockets.connect([(a, port) for _, a, port in targets], self.reach)
        best: dict[str, tuple[Answer, str]] = {}
        for (peer, address, _), answer in zip(targets, answers, strict=True):
            if peer not in best or (answer.reached and not best[peer][0].reached):
                best[peer] = (answer, address)
        for peer, (answer, address) in best.items():
            yield peer, answer, address

    def _probe(self, system: System, windows: Sequence[Window]) -> None:
        """Ask the peers in turn, so that one disturbance does not fill one peer's window."""
        deadline = system.clock.mono() + self.budget
        for _ in range(self.probes):
            for window in windows:
                if system.clock.mono() > deadline:
                    return
                if window.lost >= MOST_LOST:
                    continue
                if window.way == "tcp":
                    target = (window.address, window.port)
                    window.take(system.sockets.connect([target], PROBE_TIMEOUT)[0])
                elif window.way == "icmp":
                    window.take(system.sockets.echo(window.address, PROBE_TIMEOUT))

    def _estimates(
        self, sockets: Sockets, windows: Sequence[Window], verdicts: dict[str, Any]
    ) -> Iterator[Sample]:
        own = {way: self._own(sockets, way) for way in {w.way for w in windows} if way}
        for window in windows:
            label = (("peer", window.peer),)
            if window.way is not None and window.asked:
                lost = window.lost / window.asked
                yield Sample("peer_probes_lost_ratio", lost, label)
            if window.way is None or len(window.times) < max(self.probes * ENOUGH, 1):
                continue
            estimate = max(quartile(window.times) - own[window.way], 0.0)
            yield Sample("peer_round_trip_seconds", estimate, label)
            earlier = verdicts.get(window.peer, {})
            verdict = judged(earlier, estimate, self.threshold, self.band)
            verdicts[window.peer] = verdict
            if verdict["high"] is not None:
                yield Sample("peer_latency_high", float(verdict["high"]), label)
        measured = {window.peer for window in windows if window.times}
        for peer in set(verdicts) - measured:  # a gap: windows in a row begin anew
            verdicts[peer] = {"high": verdicts[peer].get("high")}

    def _own(self, sockets: Sockets, way: Way) -> float:
        """This node's share of a round trip, measured on its loopback; 0 where it cannot be. The
        shortest: a busy moment here must not be taken off the network's time."""
        if way == "tcp":
            times = sockets.loopback(self.probes)
        else:
            answers = [sockets.echo(LOOPBACK, PROBE_TIMEOUT) for _ in range(self.probes)]
            times = [a.round_trip for a in answers if a.round_trip is not None]
        return min(times, default=0.0)


def _ways(answer: Answer, port: int) -> list[Way]:
    """How a reached peer can be timed, the better way first."""
    if answer.reason == "refused":
        return ["icmp"]  # nothing listens: a refusal carries no time
    return ["icmp", "tcp"] if port == SSH else ["tcp", "icmp"]


def _problem(peer: str, text: str) -> Event:
    labels = (("peer", peer),)
    return Event("peer_unknown", f"peer {peer} cannot be asked: {text}", labels, severity="warning")


def quartile(times: Sequence[float]) -> float:
    """The lower quartile by nearest rank: the 5th smallest of 20."""
    return sorted(times)[math.ceil(len(times) / 4) - 1]


def judged(
    earlier: Mapping[str, Any], estimate: float, threshold: float, band: float
) -> dict[str, Any]:
    """The verdict after one more window: ``high`` (None before the second window), and how many
    windows in a row lay on this ``side`` (``run``) and beyond the dead band (``far``)."""
    side = estimate > threshold
    same = earlier.get("side") == side
    beyond = abs(estimate - threshold) > band * threshold
    run = min(earlier.get("run", 0) + 1, NEAR_WINDOWS) if same else 1
    far = (min(earlier.get("far", 0) + 1, WINDOWS) if same else 1) if beyond else 0
    high = earlier.get("high")
    if high is None:
        high = side if run >= WINDOWS else None
    elif far >= WINDOWS or run >= NEAR_WINDOWS:
        high = side
    return {"high": high, "side": side, "run": run, "far": far}
