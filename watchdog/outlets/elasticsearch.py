"""Events into an Elasticsearch data stream, each exactly once.

``_id`` is the event's id and the operation ``create``, so a repeated event is refused (409) within
a backing index. A stream rolls over to a new one, though; so whatever may have arrived unheard (a
bulk whose answer was lost, and the first events after a start) is looked up before it is sent.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from elasticsearch import ApiError, ElasticsearchWarning, TransportError
from elasticsearch import Elasticsearch as Client

from ..config.models import Elasticsearch as Settings
from ..ecs import STREAM, TEMPLATE, TEMPLATE_VERSION, Encoder, index_template
from ..errors import Temporary
from ..model import StoredEvent
from .follower import COUNT
from .node import TIMEOUT, Node

DENIED_DELAY = 60.0  # seconds: a wrong password or a missing right is not mended in a moment
NDJSON = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
JSON = {"Content-Type": "application/json", "Accept": "application/json"}
ABSENT = (400, 404, 405)  # answers where a template, or the call for it, is not there

Refused = list[tuple[StoredEvent, str]]


class Elasticsearch:
    """A delivery to one cluster. ``notes`` tells what the server could not do."""

    name = "elasticsearch"

    def __init__(self, settings: Settings, host: str) -> None:
        _quiet()
        self.notes: list[str] = []
        self._settings, self._encoder = settings, Encoder(host)
        self._client: Client | None = None
        self._prepared = False
        self._doubtful = False
        self._sure_after: int | None = None
        self._taken: set[str] = set()
        self._refused: Refused = []

    def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def deliver(self, batch: Sequence[StoredEvent]) -> Refused:
        """See Delivery.deliver."""
        if not self._prepared:
            self._prepare()
        if self._sure_after is None:
            self._sure_after = batch[0].seq + COUNT  # what an earlier run may have had in flight
        missing = self._without_taken(batch)
        if missing and (self._doubtful or missing[0].seq < self._sure_after):
            self._taken |= self._present([event.id for event in missing])
            self._doubtful = False
            missing = self._without_taken(missing)
        self._send(missing)
        refused, self._refused = self._refused, []
        self._taken.clear()
        return refused

    def _without_taken(self, events: Iterable[StoredEvent]) -> list[StoredEvent]:
        return [event for event in events if event.id not in self._taken]

    def _send(self, events: Sequence[StoredEvent]) -> None:
        """Send events, halving what is too large or refused whole; notes what was taken."""
        if not events:
            return
        lines = []
        for event in events:
            lines.append(f'{{"create":{{"_id":"{event.id}"}}}}')
            lines.append(self._encoder.line(event))
        lines.append("")
        path = f"/{STREAM}/_bulk?filter_path=items.*.status,items.*.error,items.*.failure_store"
        try:
            answer = self._ask("POST", path, "\n".join(lines).encode(), NDJSON, sure=False)
        except _Refusal as refusal:
            if refusal.status not in (400, 413):
                raise self._waiting(refusal) from refusal
            if len(events) == 1:
                self._refuse(events[0], str(refusal))
            else:
                half = len(events) // 2
                self._send(events[:half])
                self._send(events[half:])
            return
        self._note_items(events, answer)

    def _note_items(self, events: Sequence[StoredEvent], answer: Mapping[str, Any]) -> None:
        items = _items(answer)
        if len(items) != len(events):
            self._doubtful = True
            raise Temporary(f"the answer names {len(items)} of {len(events)} events")
        waiting = ""
        for event, item in zip(events, items, strict=True):
            status = item["status"]
            if status == 429 or status >= 500:
                waiting = _reason(item.get("error"), status)
                self._doubtful = self._doubtful or status >= 500
            elif status >= 400 and status != 409:
                self._refuse(event, _reason(item.get("error"), status))
            elif item.get("failure_store") == "used":
                self._refuse(event, "the stream's failure store took it")
            else:
                self._taken.add(event.id)
        if waiting:
            raise Temporary(waiting)

    def _refuse(self, event: StoredEvent, reason: str) -> None:
        self._refused.append((event, reason))
        self._taken.add(event.id)

    def _present(self, ids: Sequence[str]) -> set[str]:
        """Which of the ids are in the stream, in any of its backing indices."""
        query = {"query": {"ids": {"values": ids}}, "size": len(ids), "_source": False}
        path = (
            f"/{STREAM}/_search?allow_partial_search_results=false&filter_path=hits.hits._id"
            "&track_total_hits=false"
        )
        try:
            self._refresh()
            found = self._ask("POST", path, query)
        except _Refusal as refusal:
            if refusal.status == 404:
                return set()  # no such stream yet
            raise self._waiting(refusal) from refusal
        return {hit["_id"] for hit in found.get("hits", {}).get("hits", ())}

    def _refresh(self) -> None:
        try:
            refreshed = self._ask("POST", f"/{STREAM}/_refresh")
        except _Refusal as refusal:
            if refusal.status != 403:
                raise
            self.notes.append("the right 'maintenance' is missing; a doubtful bulk may repeat")
        else:
            if refreshed.get("_shards", {}).get("failed"):
                raise Temporary("a shard of the stream cannot be refreshed")

    def _prepare(self) -> None:
        """Put the index template, unless the server has this version of it or a newer one.

        A server that cannot take it is used all the same, and that is noted.
        """
        path = f"/_index_template/{TEMPLATE}"
        try:
            if self._template_version(path) < TEMPLATE_VERSION:
                self._ask("PUT", path, index_template())
        except _Refusal as refusal:
            if refusal.status == 401:
                raise self._waiting(refusal) from refusal
            self.notes.append(f"the index template could not be put: {refusal}")
        self._prepared = True

    def _template_version(self, path: str) -> int:
        """The version of the server's template; 0 without one or on a server without the call."""
        try:
            found = self._ask("GET", f"{path}?filter_path=index_templates.index_template.version")
        except _Refusal as refusal:
            if refusal.status not in ABSENT:
                raise
            return 0
        each = [item["index_template"]["version"] for item in found.get("index_templates", ())]
        return max(each, default=0)

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] = JSON,
        *,
        sure: bool = True,
    ) -> Mapping[str, Any]:
        """One request. Raises _Refusal for an answer that repeating does not change, else
        Temporary. ``sure`` false: without an answer it may have been carried out all the same.
        """
        if self._client is None:
            self._client = _connect(self._settings)
        try:
            answer = self._client.perform_request(method, path, headers=headers, body=body)
        except ApiError as error:
            status, reason = error.meta.status, _reason(_cause(error), error.meta.status)
            if 400 <= status < 500 and status not in (408, 429):
                raise _Refusal(status, reason) from error
            self._doubtful = self._doubtful or not (sure or status == 429)
            raise Temporary(reason) from error
        except TransportError as error:
            self._doubtful = self._doubtful or not sure
            raise Temporary(_line(error.message)) from error
        return answer.body if isinstance(answer.body, dict) else {}

    def _waiting(self, refusal: _Refusal) -> Temporary:
        """A refusal that a person may mend: a new connection, secrets read afresh, some time."""
        self.close()
        return Temporary(str(refusal), DENIED_DELAY if refusal.status in (401, 403) else 0.0)


def _items(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the answer to a bulk says of each event; nothing where it has another form."""
    try:
        items = [item["create"] for item in answer.get("items", ())]
    except (KeyError, TypeError):
        return []
    fits = all(isinstance(each, dict) and isinstance(each.get("status"), int) for each in items)
    return items if fits else []


class _Refusal(Exception):
    """A 4xx answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _quiet() -> None:
    """Keep the library's own lines off standard error: the follower tells what changes."""
    warnings.simplefilter("ignore", ElasticsearchWarning)
    library = logging.getLogger("elastic_transport")
    library.propagate = False
    if not library.handlers:
        library.addHandler(logging.NullHandler())


def _connect(settings: Settings) -> Client:
    """A client as configured. Raises Temporary when a secret or a certificate cannot be read."""
    hosts = [_with_port(url) for url in settings.hosts]
    options: dict[str, Any] = {}
    try:
        if settings.api_key_file is not None:
            options["api_key"] = _secret(settings.api_key_file)
        elif settings.username is not None and settings.password_file is not None:
            options["basic_auth"] = (settings.username, _secret(settings.password_file))
        if settings.ca_file is not None and any(url.startswith("https:") for url in hosts):
            options["ca_certs"] = str(settings.ca_file)
        return Client(
            hosts,
            node_class=Node,
            request_timeout=TIMEOUT,
            max_retries=0,
            retry_on_timeout=False,
            **options,
        )
    except (OSError, ValueError) as error:
        raise Temporary(_line(str(error)), DENIED_DELAY) from error


def _secret(path: Path) -> str:
    return path.read_text().strip()


def _with_port(url: str) -> str:
    """The address with Elasticsearch's own port where none is written."""
    parts = urlsplit(url)
    if parts.port is not None:
        return url
    return urlunsplit(parts._replace(netloc=f"{parts.netloc}:9200"))


def _cause(error: ApiError) -> object:
    return error.body.get("error") if isinstance(error.body, dict) else error.body


def _reason(error: object, status: int) -> str:
    """What the server says, in one line."""
    if isinstance(error, dict):
        causes = [
            str(error.get("reason", "")),
            str((error.get("caused_by") or {}).get("reason", "")),
        ]
        text = f"{error.get('type', '')}: {' / '.join(cause for cause in causes if cause)}"
    else:
        text = str(error or "")
    return _line(f"{status} {text}")


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
