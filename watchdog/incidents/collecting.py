"""An incident's series, logs and processes as the batches that the collectors would give.

Logs go through the real classifiers; series belong to the collector that gives such series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone

from ..cardfaults import CardFaults
from ..inventory import resolve
from ..logevents import LogBook
from ..model import NAME, Batch, Event, Labels, Page, Sample, labelset
from ..schedules import Schedules
from ..series import is_stale
from .form import GivenSeries, Incident, LogText, ProcessEvent
from .noise import Noise

_LINKS = ("accelerator_link_", "accelerator_network_", "accelerator_optical_")
_ENGINE = ("vllm:", "http_", "process_", "python_", "service_up", "service_health")
_PROBE = ("service_probe_", "service_canary_")
_PROCESS = ("service_process", "service_phase", "service_orphan")
_FACTS = ("service_card", "service_target", "service_mode", "service_needs")
_PREFIXES: Mapping[str, str] = {
    "peer_": "peers",
    "numa_": "numa",
    "l3_": "l3",
    "schedule_": "schedules",
    "host_": "host",
    "node_": "host",
}
OOM = (
    "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:98304000kB, "
    "anon-rss:65536000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:131072kB oom_score_adj:0"
)


def owner(key: Labels) -> str:
    """The collector instance that gives a series."""
    labels = dict(key)
    name, service = labels.get(NAME, ""), labels.get("service", "")
    ascend = labels.get("vendor") == "ascend" or labels.get("card", "").startswith("npu")
    if name.startswith(_FACTS):
        return "services"
    if name == "accelerator_fault":
        return "npu_smi" if ascend else "kernel_log"
    if name.startswith(_LINKS):
        return "hccn_tool" if ascend else "nvidia_links"
    if name.startswith("accelerator_"):
        return "npu_smi" if ascend else "nvidia_smi"
    if name.startswith("log_"):
        return f"vllm_log/{service}" if service else "kernel_log"
    for prefixes, kind in (
        (_ENGINE, "vllm_metrics"), (_PROBE, "vllm_probe"), (_PROCESS, "vllm_process"),
        (("memory_fragmentation",), "fragmentation"),
    ):  # fmt: skip
        if name.startswith(prefixes):
            return f"{kind}/{service}" if service else kind
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), "other")


@dataclass(slots=True)
class _Log:
    """One collector that follows a log. ``waiting`` are lines that it has not yet read."""

    book: LogBook
    faults: CardFaults | None
    waiting: list[str] = field(default_factory=list)


class Collecting:
    """The collectors of one incident. ``start`` is the Unix time of its beginning."""

    def __init__(self, incident: Incident, start: float, noise: Noise) -> None:
        self._incident, self._start, self._noise = incident, start, noise
        self._given: dict[str, list[GivenSeries]] = {}
        for series in incident.series:
            self._given.setdefault(owner(series.labels), []).append(series)
        self._logs = dict(self._books(incident))
        self._up = self._first_states(incident.processes)
        self._told: list[Event] = []
        self._schedules = Schedules(incident.config.schedules, timezone.utc)
        self._facts = self._known_facts()

    @staticmethod
    def _books(incident: Incident) -> Iterator[tuple[str, _Log]]:
        sources = {(log.source, log.service) for log in incident.logs}
        if any(event.event == "oom_kill" for event in incident.processes):
            sources.add(("kernel", ""))
        for source, service in sorted(sources):
            labels = {"service": service} if service else {}
            book = LogBook(source, labels, timezone.utc)
            name = f"vllm_log/{service}" if source == "vllm" else f"{source}_log"
            yield name, _Log(book, None if source == "vllm" else CardFaults())

    @staticmethod
    def _first_states(events: Sequence[ProcessEvent]) -> dict[str, bool | None]:
        """Whether each server runs at first: yes, unless a start is the first thing told of it."""
        states: dict[str, bool | None] = {}
        for event in sorted(events, key=lambda each: each.at):
            states.setdefault(event.service, None if event.event == "start" else True)
        return states

    def _known_facts(self) -> Page:
        """What the daemon knows of the services without asking; given series count before it."""
        given = [dict(series.labels) for series in self._incident.series]
        vendors = {labels.get("card", ""): labels.get("vendor", "") for labels in given}
        rows: dict[Labels, float] = {}
        for name, service in self._incident.config.services.items():
            for card in (self._card(configured) for configured in service.cards):
                vendor = vendors.get(card) or ("ascend" if card.startswith("npu") else "nvidia")
                labels = {"service": name, "card": card, "vendor": vendor}
                rows[labelset(labels, "service_card")] = 1.0
            for peer in service.needs:
                rows[labelset({"service": name, "peer": peer}, "service_needs")] = 1.0
            for target, value in service.targets.model_dump(exclude_none=True).items():
                rows[labelset({"service": name, "target": target}, "service_target")] = float(value)
            rows[labelset({"service": name, "mode": "normal"}, "service_mode")] = 1.0
        own = {_what(labels) for labels in given if labels.get(NAME, "").startswith(_FACTS)}
        rows = {key: value for key, value in rows.items() if _what(dict(key)) not in own}
        return Page(tuple(rows), tuple(rows.values()))

    def _card(self, configured: str) -> str:
        """The card that a configured name means: as the tool numbers it, else ``npu1``."""
        known = [dict(series.labels) for series in self._incident.series]
        info = [labels for labels in known if labels.get(NAME) == "accelerator_info"]
        return resolve(configured, info) or configured.replace("npu ", "npu")

    # What happens

    def line(self, log: LogText) -> None:
        """Lines are written into a log."""
        name = f"vllm_log/{log.service}" if log.source == "vllm" else f"{log.source}_log"
        text = log.text if log.text.endswith("\n") else log.text + "\n"
        self._logs[name].waiting.append(text)
        if self._noise.doubled():
            self._logs[name].waiting.append(text)

    def process(self, event: ProcessEvent, *, wanted: bool) -> None:
        """A server's process begins or ends; ``wanted``: somebody asked for the end."""
        if event.event == "oom_kill":
            self._logs["kernel_log"].waiting.append(OOM + "\n")
        started = event.event == "start"
        self._up[event.service] = True if started else (None if wanted else False)
        kind = "process_started" if started else "process_exited"
        text = f"the server of {event.service} " + ("started" if started else "ended")
        fields = {} if event.code is None else {"code": event.code}
        severity = "info" if started or wanted else "warning"
        labels = labelset({"service": event.service})
        self._told.append(Event(kind, text, labels, fields, severity, urgent=not started))

    # What collectors give

    def regular(self, at: float, step: int) -> list[Batch]:
        """What every collector gives at a regular tick, ``step`` being its number."""
        names = {*self._given, *self._logs, *(f"vllm_process/{name}" for name in self._up)}
        names.add("services")
        ran = (name for name in sorted(names) if self._runs(name, at, step))
        batches = [self._batch(name, at, step) for name in ran]
        if self._incident.config.schedules and "schedules" not in self._given:
            batches.append(Batch("schedules", (self._schedules.page(self._start + at),)))
        return self._noise.shuffled(batches)

    def _runs(self, name: str, at: float, step: int) -> bool:
        """Whether a collector runs at a tick: not where each of its series has a gap."""
        given = self._given.get(name)
        if not given or name in self._logs or self._stalled(name, at) or name == "services":
            return True
        if name.partition("/")[0] == "vllm_process":
            return True
        return any(
            step < len(series.values) and series.values[step] is not None for series in given
        )

    def urgent(self, at: float) -> list[Batch]:
        """What only those give that have something urgent to say."""
        names = {name for name, log in self._logs.items() if log.waiting}
        if self._told:
            names |= {f"vllm_process/{dict(event.labels)['service']}" for event in self._told}
        return [
            self._batch(name, at, int(at // self._incident.config.interval))
            for name in sorted(names)
            if not self._stalled(name, at)
        ]

    def _stalled(self, name: str, at: float) -> bool:
        stalls = (*self._incident.stalls, *self._noise.stalls)
        base = name.partition("/")[0]
        return any(s.collector in (name, base) and s.begin <= at < s.end for s in stalls)

    def _batch(self, name: str, at: float, step: int) -> Batch:
        kind, _, service = name.partition("/")
        scope = labelset({"service": service})
        if self._stalled(name, at):
            return Batch(name, error="did not end in time", stalled=True, scope=scope)
        samples = list(self._samples(name, step))
        events: list[Event] = []
        if name in self._logs:
            for item in self._read(self._logs[name], self._start + at):
                (events if isinstance(item, Event) else samples).append(item)  # type: ignore[arg-type]
        if kind == "vllm_process":
            state = self._up.get(service)
            given = {sample.name for sample in samples}
            if state is not None and "service_process_up" not in given:
                samples.append(Sample("service_process_up", float(state), scope))
            events += [event for event in self._told if event.labels == scope]
            self._told = [event for event in self._told if event.labels != scope]
        rows: dict[Labels, float] = {}
        for sample in samples:
            rows.setdefault(sample.key, sample.value)  # what the incident gives counts first
        pages = [Page(tuple(rows), tuple(rows.values()))] if rows else []
        if name == "services":
            pages.append(self._facts)
        return Batch(name, tuple(pages), tuple(events), scope=scope)

    def _samples(self, name: str, step: int) -> Iterator[Sample]:
        for series in self._given.get(name, ()):
            value = series.values[step] if step < len(series.values) else None
            if value is None or is_stale(value) or self._noise.missing():
                continue
            labels = tuple(pair for pair in series.labels if pair[0] != NAME)
            yield Sample(dict(series.labels)[NAME], value, labels)

    @staticmethod
    def _read(log: _Log, wall: float) -> Iterable[Event | Sample]:
        """What was written since the last run, as the log's collector tells it."""
        log.book.open()
        data = "".join(log.waiting).encode()
        log.waiting.clear()
        if data:
            for record, event in log.book.take("log", data, wall):
                now = replace(record, time=None)  # a line happens when the incident says so
                labels = log.faults.note(now, wall) if log.faults is not None else {}
                yield log.book.event(now, labels) if labels else replace(event, time=None)
        if log.faults is not None:
            yield from log.faults.samples(wall)
        yield from log.book.close(wall)


def _what(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Which fact a series states, whatever else it says."""
    return tuple(labels.get(key, "") for key in (NAME, "service", "card", "peer", "target"))
