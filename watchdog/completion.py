"""One real request to a server or a front, as a user would make it: does it answer?

Acts are judged by it. It asks once, remembers nothing, and keeps neither prompt nor answer; the
periodic probe with its patience and its memory is a collector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .config import Service
from .errors import HttpError
from .probeanswers import ROUTES, Finding, document_of, judge
from .system import Response, System

ASIDE = 3.0  # seconds for /v1/models and /openapi.json
MAX_ANSWER = 4 * 1024 * 1024


def completion(
    system: System, url: str, service: Service, *, timeout: float, expect: str | None = None
) -> Finding:
    """Ask ``url`` for what the service's probe asks for; ``timeout`` seconds for the answer.

    Verdict: ok, failed (refused, no answer in time, 5xx, broken), unknown (the server answers and
    will not talk to us: 401, 404, 429, no model; no key file). Where probing is off (kind none)
    ``/health`` is asked instead. ``expect``: the canary's expression, else the service's own.
    Raises nothing that a server can say.
    """
    probe = service.probe
    try:
        if probe.kind == "none":
            return _health(system, url, timeout)
        model = probe.model or _first_model(system, url, service)
        if model is None:
            return Finding("unknown", "no model is served")
        finding = Finding("unknown", "no route that a probe can use")
        for kind in _kinds(system, url, service):
            body = _body(service, kind, model)
            answer = _ask(system, "POST", url + ROUTES[kind], service, timeout, body)
            finding = judge(answer, kind, expect or probe.expect)
            if not finding.unfit:
                break
    except HttpError as error:
        return Finding("unknown" if error.reason == "tls" else "failed", str(error))
    except OSError as error:
        return Finding("unknown", f"the key file cannot be read: {error.strerror}")
    return finding


def answers(system: System, url: str, service: Service, *, timeout: float) -> bool:
    """Whether a real request succeeds, with the answer that the canary expects, if any."""
    finding = completion(system, url, service, timeout=timeout)
    return finding.verdict == "ok" and finding.canary is not False


def _health(system: System, url: str, timeout: float) -> Finding:
    answer = system.http.request("GET", url.rstrip("/") + "/health", timeout=timeout)
    if answer.status == 200:
        return Finding("ok")
    return Finding("failed" if answer.status >= 500 else "unknown", f"HTTP {answer.status}")


def _first_model(system: System, url: str, service: Service) -> str | None:
    answer = _ask(system, "GET", url + "/v1/models", service, ASIDE)
    if answer.status >= 500:
        raise HttpError(f"/v1/models answers {answer.status}", "status")
    for model in document_of(answer).get("data") or []:
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            return str(model["id"])
    return None


def _kinds(system: System, url: str, service: Service) -> Iterable[str]:
    if service.probe.kind is not None:
        return (service.probe.kind,)
    answer = _ask(system, "GET", url + "/openapi.json", service, ASIDE)
    paths = document_of(answer).get("paths")
    if answer.status != 200 or not isinstance(paths, dict):
        return tuple(ROUTES)
    return tuple(kind for kind, route in ROUTES.items() if route in paths)


def _ask(
    system: System, method: str, url: str, service: Service, timeout: float, body: Any = None
) -> Response:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if service.api_key_file:
        key = system.files.text(service.api_key_file, 4096).strip()
        headers["Authorization"] = f"Bearer {key}"
    scheme, _, rest = url.partition("://")
    return system.http.request(
        method,
        f"{scheme}://{rest.replace('//', '/')}",
        timeout=timeout,
        headers=headers,
        body=None if body is None else json.dumps(body).encode(),
        limit=MAX_ANSWER,
    )


def _body(service: Service, kind: str, model: str) -> dict[str, Any]:
    probe = service.probe
    if kind == "embedding":
        return {"model": model, "input": probe.prompt}
    common = {"model": model, "max_tokens": probe.max_tokens, "temperature": 0}
    if kind == "chat":
        return {**common, "messages": [{"role": "user", "content": probe.prompt}]}
    return {**common, "prompt": probe.prompt}
