"""Incident files as values: read strictly, every error at its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeVar

from .. import documents, policies, seriesnotation
from ..config import Config, checked
from ..diagnosis import CAUSES
from ..documents import Path
from ..errors import ConfigError, Place, Problem
from ..guard import ACTS
from ..rulepack.strict import Strict
from ..seriesnotation import NotationError
from .form import Deed, Expected, GivenSeries, Incident, LogText, ProcessEvent, Stall

KEYS = (
    "name", "source", "mode", "interval", "services", "policies", "guard", "peers", "schedules",
    "series", "logs", "processes", "stalled", "people", "until", "expect",
)  # fmt: skip
CONFIGURED = ("mode", "interval", "services", "policies", "guard", "peers", "schedules")
SOURCES = ("kernel", "ascend", "vllm")
EVENTS = ("start", "exit", "oom_kill")
DEEDS = ("restart", "stop", "start", "drain", "pause", "resume", "approve", "silence")
WORDS = ("nothing", *ACTS)
MOST = 24 * 3600.0  # seconds that an incident may last

T = TypeVar("T")


def found(paths: Sequence[FilePath]) -> list[FilePath]:
    """The incident files that paths name: files, and all ``*.yaml`` in folders.

    Raises ConfigError for a path that is not there and for a folder without any.
    """
    files: list[FilePath] = []
    problems: list[Problem] = []
    for path in paths:
        inside = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        if not inside:
            problems.append(Problem(Place(str(path)), "holds no incident (*.yaml)"))
        elif not path.exists():
            problems.append(Problem(Place(str(path)), "is not there"))
        files += inside
    if problems:
        raise ConfigError(problems)
    return files


def read(path: FilePath) -> Incident:
    """Read an incident file. Raises ConfigError with every error in it."""
    return parse(documents.read(path, "incident"), str(path))


def parse(text: str, file: str) -> Incident:
    """The incident of a text. Raises ConfigError with every error in it."""
    reading = _Reading.of(text, file)
    incident = reading.incident()
    if reading.problems:
        raise ConfigError(reading.problems)
    assert incident is not None
    return incident


class _Reading(Strict):
    """One incident file being read."""

    def incident(self) -> Incident | None:
        """What the file says; ``problems`` holds all that is wrong."""
        root = self.mapping((), self.raw, KEYS, "an incident")
        if root is None:
            return None
        config = self._config()
        if not self.text(("name",), root.get("name")):
            self.error((), "'name' is missing")
        until = self._moment(("until",), root) if "until" in root else None
        if until is None:
            self.error((), "'until' is missing: how long the incident lasts")
        elif not 0 < until <= MOST:
            self.error(("until",), "until: from 1s to 24h")
        services = tuple(config.services)
        return Incident(
            self.document.file,
            self.text(("name",), root.get("name")),
            config,
            until or 0.0,
            self._each(("series",), root, self._series),
            self._each(("logs",), root, lambda p, v: self._log(p, v, services)),
            self._each(("processes",), root, lambda p, v: self._process(p, v, services)),
            self._each(("stalled",), root, self._stall),
            self._each(("people",), root, lambda p, v: self._deed(p, v, services)),
            self._expect(root, services),
        )

    def _config(self) -> Config:
        """The keys that have the configuration's form; peers that only series know are added."""
        value = self.document.value
        given = {key: value[key] for key in CONFIGURED if key in value}
        given.setdefault("mode", "act")
        services = given.get("services")
        if isinstance(services, dict):
            needs = [
                need for service in services.values() if isinstance(service, dict)
                for need in service.get("needs") or ()
            ]  # fmt: skip
            known = given.get("peers") or {}
            if isinstance(known, dict):
                given["peers"] = {**{str(n): {"host": str(n)} for n in needs}, **known}
        try:
            config = checked(given, self.document)
            policies.bind(config, self.document.file)
        except ConfigError as error:
            self.problems += error.problems
            return Config()
        return config

    def _each(
        self, path: Path, entry: Mapping[str, Any], read_one: Callable[[Path, Any], T | None]
    ) -> tuple[T, ...]:
        items = self.items(path, entry.get(str(path[-1])), str(path[-1]))
        results = [read_one((*path, i), item) for i, item in enumerate(items)]
        return tuple(result for result in results if result is not None)

    def _moment(self, path: Path, entry: Mapping[str, Any], default: float = 0.0) -> float:
        key = str(path[-1])
        if key not in entry:
            self.error(path[:-1], f"{key!r} is missing")
            return default
        text = self.text(path, entry[key])
        if text in ("0", "0s"):
            return 0.0
        seconds = self.duration(path, entry)
        return default if seconds is None else seconds

    def _choice(
        self, path: Path, entry: Mapping[str, Any], known: Sequence[str], default: str = ""
    ) -> str:
        key = str(path[-1])
        text = self.text(path, entry.get(key)) or default
        if text not in known:
            what = f"{text!r} is none of them" if text else "is missing"
            self.error(path, f"{key}: {what}", "known: " + ", ".join(known))
        return text

    def _service(
        self, path: Path, entry: Mapping[str, Any], services: Sequence[str], *, needed: bool
    ) -> str:
        text = self.text(path, entry.get("service"))
        if not text and needed and len(services) == 1:
            return services[0]
        if text and text not in services:
            self.error(path, f"no such service: {text!r}", "known: " + ", ".join(services))
        if not text and needed:
            self.error(path[:-1], "'service' is missing: there is more than one (or none)")
        return text

    def _series(self, path: Path, value: Any) -> GivenSeries | None:
        entry = self.mapping(path, value, ("series", "values"), "a series")
        if entry is None:
            return None
        try:
            where, text = (*path, "series"), self.text((*path, "series"), entry.get("series"))
            labels = seriesnotation.series(text)
            where, text = (*path, "values"), self.text((*path, "values"), entry.get("values"))
            values = seriesnotation.values(text)
        except NotationError as error:
            self.in_text(where, text, error.offset, str(error), "error")
            return None
        return GivenSeries(labels, tuple(values))

    def _log(self, path: Path, value: Any, services: Sequence[str]) -> LogText | None:
        entry = self.mapping(path, value, ("at", "source", "text", "service"), "a log")
        if entry is None:
            return None
        source = self._choice((*path, "source"), entry, SOURCES)
        text = self.text((*path, "text"), entry.get("text"))
        if not text.strip():
            self.error(path, "'text' is missing")
        vllm = source == "vllm"
        service = self._service((*path, "service"), entry, services, needed=vllm)
        return LogText(self._moment((*path, "at"), entry), source, text, service if vllm else "")

    def _process(self, path: Path, value: Any, services: Sequence[str]) -> ProcessEvent | None:
        entry = self.mapping(path, value, ("at", "service", "event", "code"), "a process")
        if entry is None:
            return None
        code = self.text((*path, "code"), entry.get("code"))
        if code and not code.lstrip("-").isdigit():
            self.error((*path, "code"), f"code: {code!r} is no exit status")
            code = ""
        return ProcessEvent(
            self._moment((*path, "at"), entry),
            self._service((*path, "service"), entry, services, needed=True),
            self._choice((*path, "event"), entry, EVENTS),
            int(code) if code else None,
        )

    def _stall(self, path: Path, value: Any) -> Stall | None:
        entry = self.mapping(path, value, ("collector", "from", "to"), "a stall")
        if entry is None:
            return None
        name = self.text((*path, "collector"), entry.get("collector"))
        if not name:
            self.error(path, "'collector' is missing")
        begin = self._moment((*path, "from"), entry)
        end = self._moment((*path, "to"), entry, MOST) if "to" in entry else MOST
        if end <= begin:
            self.error(path, "'to' is not after 'from'")
        return Stall(name, begin, end)

    def _deed(self, path: Path, value: Any, services: Sequence[str]) -> Deed | None:
        entry = self.mapping(path, value, ("at", "do", "service", "alert"), "a deed")
        if entry is None:
            return None
        do = self._choice((*path, "do"), entry, DEEDS)
        alert = self.text((*path, "alert"), entry.get("alert"))
        if (do == "silence") != bool(alert):
            self.error(path, "'alert' belongs to a silence, and a silence needs it")
        acts_on_server = do in ("restart", "stop", "start", "drain")
        service = self._service((*path, "service"), entry, services, needed=acts_on_server)
        return Deed(self._moment((*path, "at"), entry), do, service, alert)

    def _expect(self, root: Mapping[str, Any], services: Sequence[str]) -> tuple[Expected, ...]:
        if "expect" not in root:
            self.error((), "'expect' is missing")
            return ()
        value = root["expect"]
        several = isinstance(value, list)
        items = value if several else [value]
        if several and not items:
            self.error(("expect",), "expect is empty")
        paths: list[Path] = [("expect", i) if several else ("expect",) for i in range(len(items))]
        results = [self._expected(p, v, services) for p, v in zip(paths, items, strict=True)]
        return tuple(result for result in results if result is not None)

    def _expected(self, path: Path, value: Any, services: Sequence[str]) -> Expected | None:
        keys = ("service", "alerts", "cause", "act", "by")
        entry = self.mapping(path, value, keys, "an expectation")
        if entry is None:
            return None
        alerts: tuple[str, ...] | None = None
        if "alerts" in entry:
            items = self.items((*path, "alerts"), entry["alerts"], "alerts")
            alerts = tuple(self.text((*path, "alerts", i), item) for i, item in enumerate(items))
        return Expected(
            self._choice((*path, "act"), entry, WORDS) if "act" in entry else None,
            self._moment((*path, "by"), entry) if "by" in entry else None,
            self._service((*path, "service"), entry, services, needed=False),
            alerts,
            self._causes((*path, "cause"), entry) if "cause" in entry else None,
        )

    def _causes(self, path: Path, entry: Mapping[str, Any]) -> tuple[str, ...]:
        value = entry["cause"]
        words = value if isinstance(value, list) else [value]
        for word in words:
            if word not in CAUSES:
                self.error(path, f"{word!r} is no cause", "known: " + ", ".join(sorted(CAUSES)))
        return tuple(map(str, words))
