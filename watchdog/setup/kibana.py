"""Brings the saved objects into a Kibana through its API (saved objects: bulk_get and import).

Source of the calls: Kibana's documented HTTP API, 8.x and 9.x.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from .calls import Access, SetupFailed, State, document, refused
from .objects import ndjson, saved_objects

HEADERS = {"kbn-xsrf": "vllm-watchdog"}


def space_path(space: str) -> str:
    """The beginning of each path in a space; empty in the default one."""
    return "" if space in ("", "default") else f"/s/{space}"


def present(access: Access, space: str) -> Mapping[str, State]:
    """What an import would do with each object, by ``type id``. Raises SetupFailed."""
    objects = saved_objects()
    path = f"{space_path(space)}/api/saved_objects/_bulk_get"
    wanted = [{"type": each["type"], "id": each["id"]} for each in objects]
    answer = access.ask("POST", path, wanted)
    if answer.status != 200:
        raise refused("POST", path, answer)
    found = {
        (each.get("type"), each.get("id")): each
        for each in document(answer).get("saved_objects", ())
        if "error" not in each
    }
    return {
        f"{each['type']} {each['id']}": _state(each, found.get((each["type"], each["id"])))
        for each in objects
    }


def _state(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> State:
    if found is None:
        return "would create"
    have = found.get("attributes", {})
    same = all(have.get(key) == value for key, value in wanted["attributes"].items())
    return "unchanged" if same else "would update"


def bring(access: Access, space: str) -> int:
    """Import all objects, replacing those of the same name; how many. Raises SetupFailed."""
    path = f"{space_path(space)}/api/saved_objects/_import?overwrite=true"
    boundary = secrets.token_hex(16)
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
        'filename="vllm-watchdog.ndjson"\r\nContent-Type: application/x-ndjson\r\n\r\n'
    )
    body = head.encode() + ndjson().encode() + f"\r\n--{boundary}--\r\n".encode()
    headers = {
        **access.headers,
        "Accept": "application/json",
        "Content-Type": f"multipart/form-data; boundary={boundary}",
    }
    answer = access.send("POST", path, body, headers)
    result = document(answer)
    if answer.status != 200:
        raise refused("POST", path, answer)
    if not result.get("success"):
        first = (result.get("errors") or [{}])[0]
        reason = (first.get("error") or {}).get("type", "no reason given")
        what = f"{first.get('type', '?')} {first.get('id', '?')}"
        raise SetupFailed(f"Kibana did not take {what}: {reason}")
    return int(result.get("successCount", 0))
