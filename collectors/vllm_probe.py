"""One small request of our own to a vLLM server, and what its answer says about the engine.

The prompt and the answer never leave this room: only status, finish reason and time do. A server
that will not talk to us (401, 404, 429, no model) or that is busy is no failure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ..watchdog.contracts import Yield
from ..watchdog.errors import HttpError
from ..watchdog.model import Checkpoint, Event, Sample, labelset
from ..watchdog.probeanswers import (
    ROUTES,
    TRIES,
    Finding,
    Kind,
    Progress,
    document_of,
    judge,
    patience,
    progress,
    quick_limit,
    remember,
    usual,
)
from ..watchdog.processes import clients, own_addresses
from ..watchdog.system import Response, System

RETRY = 60.0  # seconds until a server in which nothing to ask was found is asked again
ASIDE = 5.0  # seconds for /v1/models, /openapi.json, /metrics
HELD = 1.0  # seconds for /is_paused, /is_sleeping: a living engine tells at once
MAX_ANSWER = 4 * 1024 * 1024  # bytes; an embedding of 16,384 numbers is below 1 MiB


@dataclass(frozen=True)
class VllmProbe:
    """Asks one server for one token.

    ``kind`` None lets /openapi.json decide, ``model`` None /v1/models; what was found is kept in
    the checkpoint. ``limit`` is the time-out in seconds; it grows, to the double at most, while
    requests wait and tokens moved since the last probe. An idle server that answers quickly as a
    rule is given up after two quick tries, unless somebody else may keep it busy. ``expect`` is a
    regular expression (RE2) on the answer: the canary.
    """

    name: ClassVar[str] = "vllm_probe"

    service: str
    url: str
    kind: Kind | None = None
    model: str | None = None
    prompt: str = "2+2="
    max_tokens: int = 1
    limit: float = 20.0
    expect: str | None = None
    api_key_file: str | None = None
    interval: float = 5.0

    @property
    def instance(self) -> str:
        """``vllm_probe/SERVICE``."""
        return f"{self.name}/{self.service}"

    @property
    def scope(self) -> Mapping[str, str]:
        """The service."""
        return {"service": self.service}

    @property
    def timeout(self) -> float:
        """Seconds: the longest completion, the quick tries and the questions beside them."""
        return 3 * self.limit + 8 * ASIDE

    def collect(self, system: System) -> Iterable[Yield]:
        """Yield the verdict, success (ok and failed only), duration, and the canary's word.

        Raises OSError or SourceError when the key file cannot be read.
        """
        kept = dict(system.checkpoints.get(self.instance) or {})
        before = self._progress(system)
        finding = self._probe(system, kept, before)
        yield from self._samples(finding)
        yield from self._changes(finding, kept)
        yield Checkpoint(remember(finding, kept, before, system.clock.wall()))

    def _changes(self, finding: Finding, kept: dict[str, Any]) -> Iterator[Event]:
        """Tell once that nothing is known, that the probe fails, that it works again."""
        labels, probe = labelset(self.scope), f"the probe of {self.service}"
        if finding.verdict == "unknown" and finding.reason != kept.get("told", ""):
            yield Event("probe_unknown", f"{probe} says nothing: {finding.reason}", labels)
        if finding.verdict == "failed" and not kept.get("failing"):
            text = f"{probe} failed: {finding.reason}"
            yield Event("probe_failed", text, labels, severity="warning", urgent=True)
        if finding.verdict == "ok" and kept.get("failing"):
            yield Event("probe_recovered", f"{probe} is answered again", labels)

    def _samples(self, finding: Finding) -> Iterator[Sample]:
        service = dict(self.scope)
        verdict = labelset({**service, "verdict": finding.verdict})
        yield Sample("service_probe_verdict", 1.0, verdict)
        if finding.verdict in ("ok", "failed"):
            success = float(finding.verdict == "ok")
            yield Sample("service_probe_success", success, labelset(service))
        if finding.seconds is not None:
            yield Sample("service_probe_duration_seconds", finding.seconds, labelset(service))
        if finding.canary is not None:
            yield Sample("service_canary_success", float(finding.canary), labelset(service))

    def _probe(self, system: System, kept: dict[str, Any], before: Progress | None) -> Finding:
        if self.kind == "none":
            return Finding("unknown", "probing is switched off")
        asked = kept.get("asked")
        if asked is not None and 0 <= system.clock.wall() - asked < RETRY:
            return Finding("unknown", str(kept.get("told", "")), waits=True)
        try:
            model = self.model or kept.get("model") or self._first_model(system)
            kinds = self._kinds(system, kept)
        except HttpError as error:
            return self._without_answer(system, error, before, self.limit)
        except _Unknown as unknown:
            return Finding("unknown", str(unknown))
        finding = Finding("unknown", "no route that a probe can use")
        for kind in kinds:
            finding = self._ask(system, kind, str(model), before, kept)
            if not finding.unfit:
                break
        return finding

    def _kinds(self, system: System, kept: dict[str, Any]) -> list[str]:
        """The kinds to try, likeliest first."""
        if self.kind is not None:
            return [self.kind]
        if kept.get("kind"):
            return [str(kept["kind"])]
        answer = self._get(system, "/openapi.json")
        if answer.status != 200:
            return list(ROUTES)
        paths = document_of(answer).get("paths")
        return [
            kind for kind, route in ROUTES.items() if isinstance(paths, dict) and route in paths
        ]

    def _first_model(self, system: System) -> str:
        answer = self._get(system, "/v1/models")
        if answer.status in (301, 302, 307, 308) or 400 <= answer.status < 500:
            raise _Unknown(f"/v1/models answers {answer.status}")
        if answer.status != 200:
            raise HttpError(f"/v1/models answers {answer.status}", "status")
        for model in document_of(answer).get("data") or []:
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                return str(model["id"])
        raise _Unknown("no model is served")

    def _ask(
        self,
        system: System,
        kind: str,
        model: str,
        before: Progress | None,
        kept: dict[str, Any],
    ) -> Finding:
        """Send the request of a kind, in a hurry or with patience, and judge its answer."""
        begun = system.clock.mono()
        finding = self._hurry(system, kind, model, before, kept)
        if finding is None:
            limit = patience(before, kept.get("tokens"), self.limit)
            finding = self._try(system, kind, model, before, limit)
        seconds = system.clock.mono() - begun
        return replace(finding, seconds=seconds, kind=kind, model=model)

    def _hurry(
        self,
        system: System,
        kind: str,
        model: str,
        before: Progress | None,
        kept: dict[str, Any],
    ) -> Finding | None:
        """Quick tries of an idle server; None where there is a reason to be patient.

        The reasons: it was not idle, it never answers quickly, it just started, or there is work in
        it (its gauges stand still during a long step, so clients count as work).
        """
        limit = quick_limit(usual(kept, before), self.limit)
        if limit is None or before is None or not before.idle:
            return None
        finding = None
        for _ in range(TRIES):
            finding = self._try(system, kind, model, before, limit)
            if not finding.late or finding.verdict == "unknown":
                return finding
            if finding.verdict == "slow" or finding.busy or not self._alone(system):
                return None
        return finding

    def _alone(self, system: System) -> bool:
        """Whether the server is seen to have no client but us."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if host != "localhost" and host not in own_addresses(system.files):
            return False
        return clients(system.files, port) == 0

    def _try(
        self, system: System, kind: str, model: str, before: Progress | None, limit: float
    ) -> Finding:
        body = json.dumps(self._body(kind, model)).encode()
        headers = {**self._headers(system), "Content-Type": "application/json"}
        try:
            answer = system.http.request(
                "POST",
                self.url.rstrip("/") + ROUTES[kind],
                timeout=limit,
                headers=headers,
                body=body,
                limit=MAX_ANSWER,
            )
        except HttpError as error:
            return self._without_answer(system, error, before, limit)
        return judge(answer, kind, self.expect)

    def _without_answer(
        self, system: System, error: HttpError, before: Progress | None, limit: float
    ) -> Finding:
        """No answer at all: a time-out is a failure only where no token moved meanwhile."""
        if error.reason == "tls":
            return Finding("unknown", "the server's certificate is not trusted")
        if error.reason != "timeout":
            return Finding("failed", "refused" if error.reason == "refused" else "no answer")
        late = f"no answer within {limit:g} s"
        after = self._progress(system)
        if (after is not None and after.asleep) or self._held(system):
            return Finding("unknown", "the engine sleeps or is paused", late=True)
        if before is None or after is None:
            return Finding("failed", f"{late}, nor does the metrics page answer", late=True)
        if before.tokens is None or after.tokens is None:
            reason = f"{late}, and the metrics page does not tell progress"
            return Finding("unknown", reason, late=True)
        if after.tokens != before.tokens:
            return Finding("slow", f"{late} while tokens move", late=True)
        busy = after.running + after.waiting > 0
        return Finding("failed", f"{late} and no token moves", late=True, busy=busy)

    def _held(self, system: System) -> bool:
        """Whether a person paused the engine or put it to sleep (routes of development mode)."""
        for path, word in (("/is_paused", "is_paused"), ("/is_sleeping", "is_sleeping")):
            try:
                answer = self._get(system, path, HELD)
            except HttpError:
                return False
            if answer.status == 200 and document_of(answer).get(word) is True:
                return True
        return False

    def _progress(self, system: System) -> Progress | None:
        """The engine's counters; None when its metrics page does not answer."""
        try:
            answer = self._get(system, "/metrics")
        except HttpError:
            return None
        return progress(answer)

    def _get(self, system: System, path: str, timeout: float = ASIDE) -> Response:
        return system.http.request(
            "GET",
            self.url.rstrip("/") + path,
            timeout=timeout,
            headers=self._headers(system),
            limit=MAX_ANSWER,
        )

    def _headers(self, system: System) -> dict[str, str]:
        if not self.api_key_file:
            return {}
        return {"Authorization": f"Bearer {system.files.text(self.api_key_file, 4096).strip()}"}

    def _body(self, kind: str, model: str) -> dict[str, Any]:
        if kind == "embedding":
            return {"model": model, "input": self.prompt}
        common = {"model": model, "max_tokens": self.max_tokens, "temperature": 0}
        if kind == "chat":
            return {**common, "messages": [{"role": "user", "content": self.prompt}]}
        return {**common, "prompt": self.prompt}


class _Unknown(Exception):
    """The server answers, and the answer says nothing about its engine."""
