"""A vLLM server's own metrics, under their own names with a ``service`` label, and its health.

One collector a service. It reads /metrics and /health and judges nothing: a page that does not come
in time or holds no samples is an error (unknown), never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..watchdog.contracts import Yield
from ..watchdog.errors import HttpError, SourceError
from ..watchdog.exposition import Exposition, Reading
from ..watchdog.model import NAME, Checkpoint, Event, Labels, Page, Sample, labelset
from ..watchdog.system import Response, System

MAX_PAGE = 8 * 1024 * 1024  # bytes; a page of 2,000 series is about 250 KiB


@dataclass(frozen=True)
class VllmMetrics:
    """Scrapes one server.

    ``url`` is the server's base address, ``api_key_file`` a file that holds the bearer token,
    ``timeout`` seconds for the whole run: half for each of its two requests, at most
    ``page_timeout`` and ``health_timeout``; ``limit`` the most series of one page.

    A refused connection is knowledge: ``service_up`` and ``service_health`` are 0 and the server's
    series end. A time-out or rubbish is none: SourceError, and the series go stale.
    """

    name: ClassVar[str] = "vllm_metrics"

    service: str
    url: str
    api_key_file: str | None = None
    interval: float = 5.0
    timeout: float = 20.0
    page_timeout: float = 10.0
    health_timeout: float = 10.0
    limit: int = 10_000
    reader: Exposition | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.reader is None:
            reader = Exposition(labelset({"service": self.service}), self.limit)
            object.__setattr__(self, "reader", reader)

    @property
    def instance(self) -> str:
        """``vllm_metrics/SERVICE``."""
        return f"{self.name}/{self.service}"

    @property
    def scope(self) -> Mapping[str, str]:
        """The service."""
        return {"service": self.service}

    def collect(self, system: System) -> Iterable[Yield]:
        """Yield the page, ``service_up`` and ``service_health``.

        Raises SourceError for an answer that is no metrics page or holds no samples, HttpError when
        none came for another reason than a refused connection.
        """
        service = labelset(self.scope)
        try:
            page = self._get(system, "/metrics", min(self.page_timeout, self.timeout / 2))
        except HttpError as error:
            if error.reason != "refused":
                raise
            yield Sample("service_up", 0.0, service)
            yield Sample("service_health", 0.0, service)
            return
        if page.status != 200:
            raise SourceError(f"{self.url}/metrics answers {page.status}")
        if page.truncated:
            raise SourceError(f"{self.url}/metrics is longer than {MAX_PAGE} bytes")
        assert self.reader is not None
        reading = self.reader.read(page.body)
        if not reading.page.keys:
            raise SourceError(f"{self.url}/metrics holds no samples")
        yield reading.page
        yield Sample("service_up", 1.0, service)
        yield from _left_out(reading, service)
        yield from self._health(system)
        yield from self._remember(system, reading.page)

    def _get(self, system: System, path: str, limit: float) -> Response:
        headers = {"Accept": "text/plain;version=0.0.4"}
        if self.api_key_file:
            key = system.files.text(self.api_key_file, 4096).strip()
            headers["Authorization"] = f"Bearer {key}"
        return system.http.request(
            "GET", self.url.rstrip("/") + path, timeout=limit, headers=headers, limit=MAX_PAGE
        )

    def _health(self, system: System) -> Iterator[Sample]:
        """1 for 200; 0 for another 2xx-5xx or no answer in time; nothing where there is none."""
        limit = min(self.health_timeout, self.timeout / 2)
        try:
            status = self._get(system, "/health", limit).status
        except HttpError:
            status = 0
        if status not in (401, 403, 404, 405):
            yield Sample("service_health", float(status == 200), labelset(self.scope))

    def _remember(self, system: System, page: Page) -> Iterator[Event | Checkpoint]:
        """Tell once that the engine's series are missing, and remember having told."""
        told = bool((system.checkpoints.get(self.instance) or {}).get("told"))
        missing = not _has_engine(page)
        if missing == told:
            return
        if missing:
            yield _missing(labelset(self.scope))
        yield Checkpoint({"told": missing})


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:  # noqa: ARG001
    """Read a saved metrics page. Raises SourceError when it is none, or is empty."""
    reading = Exposition().read(data)
    if not data.strip():
        raise SourceError("the metrics page is empty")
    if not reading.page.keys:
        text = "the page describes metrics but holds no samples: the engine is not reporting"
        return [Event("metrics_not_reporting", text, severity="warning")]
    events = [] if _has_engine(reading.page) else [_missing(())]
    return [reading.page, *_left_out(reading, ()), *events]


def _has_engine(page: Page) -> bool:
    return any(
        value.startswith("vllm:") for key in page.keys for label, value in key if label == NAME
    )


def _missing(labels: Labels) -> Event:
    text = "the metrics page answers, but holds no series of the engine"
    return Event("metrics_missing_engine_series", text, labels, severity="warning")


def _left_out(reading: Reading, service: Labels) -> Iterator[Sample]:
    """What the page held and the series do not, so that a bound that was hit is seen."""
    counts = {
        "broken": reading.broken,
        "duplicate": reading.duplicates,
        "over_limit": reading.over_limit,
    }
    for reason, count in counts.items():
        if count:
            labels = labelset({**dict(service), "reason": reason})
            yield Sample("service_metrics_skipped_lines", float(count), labels)
