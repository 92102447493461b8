"""What Elasticsearch must hold for the daemon's events: template, data stream, retention, a key.

Source of the calls: the documented REST API of Elasticsearch 8.19 and 9.x. The daemon itself needs
none of this done first; it puts the plain template where that is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ..ecs import RETENTION, STREAM, TEMPLATE, index_template
from .calls import Access, SetupFailed, Wanted, document, refused

POLICY = "vllm-watchdog"
ROLLOVER = {"max_age": "30d", "max_primary_shard_size": "50gb"}
KEY_NAME = "vllm-watchdog"
LOGS_TEMPLATE = "logs-vllm"
LOGS_STREAM = "logs-vllm-default"


def wanted(*, retention: str = RETENTION, ilm: bool = False) -> list[Wanted]:
    """What shall be there, in order. ``ilm``: retention by a lifecycle policy, for clusters that
    are run that way, instead of the data stream's own lifecycle."""
    template = _stamped(_template(retention, ilm=ilm))
    things = [_policy(retention)] if ilm else []
    things += [
        Wanted(
            f"index template {TEMPLATE}",
            f"/_index_template/{TEMPLATE}",
            ("PUT", f"/_index_template/{TEMPLATE}"),
            template,
            lambda found: _digest_of(found) == template["_meta"]["digest"],
        ),
        Wanted(
            f"data stream {STREAM}",
            f"/_data_stream/{STREAM}",
            ("PUT", f"/_data_stream/{STREAM}"),
            None,
            lambda _: True,
            optional=True,
        ),
    ]
    if not ilm:
        things.append(_lifecycle(retention))
    logs = _stamped(logs_template(retention))
    things.append(
        Wanted(
            f"index template {LOGS_TEMPLATE}",
            f"/_index_template/{LOGS_TEMPLATE}",
            ("PUT", f"/_index_template/{LOGS_TEMPLATE}"),
            logs,
            lambda found: _digest_of(found) == logs["_meta"]["digest"],
        )
    )
    return things


def _template(retention: str, *, ilm: bool) -> dict[str, Any]:
    template = index_template()
    inner = template["template"]
    if ilm:
        del inner["lifecycle"]
        inner["settings"]["index"]["lifecycle"] = {"name": POLICY}
    else:
        inner["lifecycle"] = {"data_retention": retention}
    return template


def logs_template(retention: str = RETENTION) -> dict[str, Any]:
    """The template of vLLM's own logs as Filebeat, Elastic Agent or Logstash bring them."""
    keyword = {"type": "keyword", "ignore_above": 1024}
    text = {"type": "text"}
    return {
        "index_patterns": [f"{LOGS_TEMPLATE}-*"],
        "data_stream": {},
        "priority": 500,
        "version": 1,
        "_meta": {"description": "Logs of vLLM servers", "managed_by": "vllm-watchdog"},
        "template": {
            "settings": {
                "index": {"codec": "best_compression", "mapping": {"ignore_malformed": True}}
            },
            "lifecycle": {"data_retention": retention},
            "mappings": {
                "dynamic": False,
                "properties": {
                    "@timestamp": {"type": "date"},
                    "message": text,
                    "fields": {"properties": {"app": keyword}},
                    "host": {"properties": {"name": keyword}},
                    "log": {
                        "properties": {
                            "level": keyword,
                            "file": {"properties": {"path": keyword}},
                        }
                    },
                    "event": {
                        "properties": {
                            "action": keyword,
                            "dataset": keyword,
                            "severity": {"type": "long"},
                        }
                    },
                    "service": {"properties": {"name": keyword}},
                    "data_stream": {
                        "properties": dict.fromkeys(("type", "dataset", "namespace"), keyword)
                    },
                },
            },
        },
    }


def _policy(retention: str) -> Wanted:
    body = {
        "policy": {
            "_meta": {"managed_by": "vllm-watchdog"},
            "phases": {
                "hot": {"actions": {"rollover": ROLLOVER}},
                "delete": {"min_age": retention, "actions": {"delete": {}}},
            },
        }
    }

    def same(found: Any) -> bool:
        phases = found.get(POLICY, {}).get("policy", {}).get("phases", {})
        rollover = phases.get("hot", {}).get("actions", {}).get("rollover", {})
        return bool(phases.get("delete", {}).get("min_age") == retention and rollover == ROLLOVER)

    path = f"/_ilm/policy/{POLICY}"
    return Wanted(f"lifecycle policy {POLICY}", path, ("PUT", path), body, same, optional=True)


def _lifecycle(retention: str) -> Wanted:
    """Retention of a stream that is there already: the template counts for new ones only."""
    path = f"/_data_stream/{STREAM}/_lifecycle"

    def same(found: Any) -> bool:
        streams = found.get("data_streams", ())
        return any(each.get("lifecycle", {}).get("data_retention") == retention for each in streams)

    body = {"data_retention": retention}
    return Wanted(f"retention of {STREAM}", path, ("PUT", path), body, same, optional=True)


def _stamped(template: dict[str, Any]) -> dict[str, Any]:
    """The template with a digest of itself, by which it is recognised on the server."""
    text = json.dumps(template, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()[:16]
    return {**template, "_meta": {**template["_meta"], "digest": digest}}


def _digest_of(found: Any) -> str | None:
    for each in found.get("index_templates", ()):
        digest = each.get("index_template", {}).get("_meta", {}).get("digest")
        return None if digest is None else str(digest)
    return None


def key_request() -> dict[str, Any]:
    """The body that asks for an API key with the daemon's rights and no others."""
    rights = ["create_doc", "auto_configure", "read", "maintenance", "view_index_metadata"]
    role = {
        "cluster": ["monitor"],
        "indices": [{"names": [f"{TEMPLATE}-*"], "privileges": rights}],
    }
    return {"name": KEY_NAME, "role_descriptors": {KEY_NAME: role}}


def create_key(access: Access) -> str:
    """Make an API key for the daemon and return it as its configuration wants it (encoded).

    Raises SetupFailed.
    """
    path = "/_security/api_key"
    answer = access.ask("POST", path, key_request())
    if answer.status != 200:
        raise refused("POST", path, answer)
    encoded = document(answer).get("encoded")
    if not isinstance(encoded, str):
        raise SetupFailed(f"POST {path}: the answer holds no encoded key")
    return encoded


def server_version(access: Access) -> str:
    """The server's version; empty where it does not say. Raises SetupFailed for another product."""
    answer = access.ask("GET", "/")
    if answer.status in (401, 403):
        raise refused("GET", "/", answer)
    version = document(answer).get("version")
    if answer.status != 200 or not isinstance(version, dict):
        return ""
    number = str(version.get("number", ""))
    if number.partition(".")[0] not in ("8", "9"):
        raise SetupFailed(f"{access.url} is version {number}; 8.x and 9.x are supported")
    return number


def as_text(things: list[Wanted]) -> Iterator[str]:
    """The calls as a person can paste them into Kibana's console."""
    for thing in things:
        method, path = thing.put
        yield f"# {thing.what}"
        yield f"{method} {path}"
        if thing.body is not None:
            yield json.dumps(thing.body, indent=2)
        yield ""
    yield "# an API key for the daemon (outlets.elasticsearch.api_key_file holds its `encoded`)"
    yield "POST /_security/api_key"
    yield json.dumps(key_request(), indent=2)
