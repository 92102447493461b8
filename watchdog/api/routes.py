"""Which path gives what: from a request's path and parameters to an answer. No sockets here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..errors import ConfigError, WatchdogError
from ..model import Json
from . import Views
from .exporter import Exporter
from .pages import Pages, Static
from .pages.markup import POLICY as PAGE_POLICY
from .parameters import BadRequest, dumps, milliseconds, span, whole

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
MAX_EVENTS = 10_000
STATIC = "/static/"
REPORTS = {"html": (HTML, ".html"), "markdown": ("text/markdown; charset=utf-8", ".md")}
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to a client; ``headers`` stand in for the server's own of the same name."""

    status: int
    body: bytes
    type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its parameters (of the address and of a form body), its Accept and
    Accept-Language headers."""

    given: dict[str, str]
    accept: str = ""
    language: str = ""


class Routes:
    """The answers of one daemon. May be called from many threads."""

    def __init__(self, views: Views) -> None:
        self._views, self._pages, self._static = views, Pages(views), Static()
        self._exporter, self._exporting = Exporter(), threading.Lock()
        self._get: Mapping[str, Callable[[Asked], Answer]] = {
            "/": self._page,
            "/metrics": self._metrics,
            "/-/healthy": lambda _: Answer(200, b"vllm-watchdog is healthy.\n"),
            "/-/ready": self._ready,
            "/api/v1/query": self._query,
            "/api/v1/query_range": self._query_range,
            "/api/v1/alerts": lambda _: Answer(200, dumps(list(views.alerts())), JSON),
            "/api/v1/status": lambda _: Answer(200, dumps(views.status()), JSON),
            "/api/v1/events": self._events,
            "/api/v1/explain": self._explain,
            "/api/v1/healing": lambda _: Answer(200, dumps(views.healing()), JSON),
            "/api/v1/figures": lambda _: Answer(200, dumps(views.figures()), JSON),
            "/api/v1/incidents": lambda _: Answer(200, dumps(list(views.incidents())), JSON),
            "/api/v1/page": self._page_doc,
            "/report": self._report,
        }
        self._post = {path: self._get[path] for path in ("/api/v1/query", "/api/v1/query_range")}

    def answer(self, method: str, path: str, asked: Asked) -> Answer:
        """The answer to GET or POST; an error of the caller's is one line and no traceback."""
        table = self._post if method == "POST" else self._get
        handler = table.get(path)
        if path.startswith(STATIC) and method == "GET":
            return self._file(path[len(STATIC) :], asked)
        if handler is None and path in self._get:
            return Answer(405, b"method not allowed: use GET\n")
        if handler is None:
            return Answer(404, b"not found: see / for what is here\n")
        try:
            return handler(asked)
        except BadRequest as error:
            return _error(400, "bad_data", str(error))
        except ConfigError as error:
            return _error(400, "bad_data", str(error))
        except WatchdogError as error:
            return _error(422, "execution", str(error))

    def _metrics(self, asked: Asked) -> Answer:
        with self._exporting:
            body, content_type = self._exporter.render(self._views.snapshot(), asked.accept)
        return Answer(200, body, content_type)

    def _ready(self, _: Asked) -> Answer:
        if self._views.snapshot().ready:
            return Answer(200, b"vllm-watchdog is ready.\n")
        return Answer(503, b"vllm-watchdog has not finished its first tick yet.\n")

    def _page(self, asked: Asked) -> Answer:
        text = self._pages.page(asked.given.get("lang", ""), asked.language)
        headers = {"Content-Security-Policy": PAGE_POLICY, "Vary": "Accept-Language"}
        return Answer(200, text.encode("utf-8", "replace"), HTML, headers)

    def _page_doc(self, asked: Asked) -> Answer:
        return Answer(
            200, dumps(self._pages.doc(asked.given.get("lang", ""), asked.language)), JSON
        )

    def _file(self, name: str, asked: Asked) -> Answer:
        found = self._static.get(name, asked.given.get("v", ""))
        if found is None:
            return Answer(404, b"not found: see / for what is here\n")
        content, kind, caching = found
        return Answer(200, content, kind, {"Cache-Control": caching})

    def _query(self, asked: Asked) -> Answer:
        when = asked.given.get("time")
        at = milliseconds("time", when) if when else None
        return _success(self._views.query(_expression(asked), at))

    def _query_range(self, asked: Asked) -> Answer:
        return _success(self._views.query_range(_expression(asked), *span(asked.given)))

    def _explain(self, asked: Asked) -> Answer:
        return Answer(200, dumps(self._views.explain(asked.given.get("what", ""))), JSON)

    def _report(self, asked: Asked) -> Answer:
        """An incident's report as a file of its own."""
        form = asked.given.get("format") or "html"
        if form not in REPORTS:
            raise BadRequest(f"format: {form!r} is none: use {' or '.join(REPORTS)}")
        name, text = self._views.report(asked.given.get("incident", ""), form)
        kind, ending = REPORTS[form]
        named = f'inline; filename="{name}{ending}"'
        headers = {"Content-Disposition": named, "Content-Security-Policy": REPORT_POLICY}
        return Answer(200, text.encode("utf-8", "replace"), kind, headers)

    def _events(self, asked: Asked) -> Answer:
        filters = dict(asked.given)
        after = whole("after", filters.pop("after", "0"), 1 << 62)
        limit = whole("limit", filters.pop("limit", "100"), MAX_EVENTS)
        for name in filters:
            if name not in ("kind", "severity", "service", "since", "until"):
                raise BadRequest(
                    f"{name}: is no filter: use after, limit, kind, severity, service, since, until"
                )
        times = {
            name: milliseconds(name, filters[name]) / 1000
            for name in ("since", "until")
            if name in filters
        }
        return Answer(200, dumps(list(self._views.events(after, limit, filters | times))), JSON)


def _expression(asked: Asked) -> str:
    expression = asked.given.get("query", "")
    if not expression.strip():
        raise BadRequest("query: is missing")
    return expression


def _success(data: Json) -> Answer:
    return Answer(200, dumps({"status": "success", "data": data}), JSON)


def _error(status: int, kind: str, message: str) -> Answer:
    return Answer(status, dumps({"status": "error", "errorType": kind, "error": message}), JSON)
