"""`setup elasticsearch` and `setup kibana`: what they bring, once and again."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.servers import Server
from tests.support.wires import Reply, Request, wire
from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.ecs import STREAM, Encoder, index_template
from vllm_watchdog.watchdog.model import StoredEvent
from vllm_watchdog.watchdog.setup.elasticsearch import logs_template
from vllm_watchdog.watchdog.setup.objects import EVENTS, SEARCHES, ndjson, saved_objects

HERE = Path(__file__).parent
NDJSON = Path(__file__).parents[2] / "deploy/elk/kibana/vllm-watchdog.ndjson"


class Cluster:
    """An Elasticsearch as its API is documented, for the calls that a setup makes."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.puts: list[str] = []
        self.keys: list[Any] = []
        self.authorization: set[str] = set()

    def __call__(self, asked: Request) -> Reply:
        self.authorization.add(asked.headers.get("Authorization", ""))
        body = json.loads(asked.body) if asked.body else None
        if asked.method == "GET":
            return self.get(asked.path)
        self.puts.append(asked.path)
        if asked.path == "/_security/api_key":
            self.keys.append(body)
            return Reply(200, {"id": "1", "name": body["name"], "encoded": "aWQ6a2V5"})
        self.kept[asked.path] = body
        return Reply(200, {"acknowledged": True})

    def get(self, path: str) -> Reply:
        if path == "/":
            return Reply(200, {"version": {"number": "8.19.7"}, "tagline": "You Know, for Search"})
        if path not in self.kept:
            lifecycle = path.endswith("/_lifecycle") and path[: -len("/_lifecycle")] in self.kept
            return Reply(200, {"data_streams": [{"name": STREAM}]}) if lifecycle else Reply(404, {})
        kept = self.kept[path]
        if path.startswith("/_index_template/"):
            return Reply(200, {"index_templates": [{"name": path[17:], "index_template": kept}]})
        if path.endswith("/_lifecycle"):
            return Reply(200, {"data_streams": [{"name": STREAM, "lifecycle": kept}]})
        if path.startswith("/_ilm/policy/"):
            return Reply(200, {path[13:]: {"version": 1, **kept}})
        return Reply(200, {"data_streams": [{"name": STREAM}]})


def states(output: str) -> dict[str, str]:
    return {each["what"]: each["state"] for each in json.loads(output)}


def test_what_is_missing_is_created_and_a_second_run_changes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster()
    with wire(cluster) as url:
        assert run(["setup", "elasticsearch", "--host", url, "--json"]) == 0
        first, puts = states(capsys.readouterr().out), len(cluster.puts)
        assert run(["setup", "elasticsearch", "--host", url, "--json"]) == 0
        second = states(capsys.readouterr().out)

    assert set(first.values()) == {"created", "updated"}
    assert set(second.values()) == {"unchanged"}
    assert len(cluster.puts) == puts == 4


def test_a_dry_run_says_what_would_change_and_changes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster()
    with wire(cluster) as url:
        assert run(["setup", "elasticsearch", "--host", url, "--dry-run", "--json"]) == 0

    assert cluster.puts == []
    assert "would create" in states(capsys.readouterr().out).values()


def test_another_retention_updates_the_template_and_the_stream(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster()
    with wire(cluster) as url:
        run(["setup", "elasticsearch", "--host", url])
        capsys.readouterr()
        assert run(["setup", "elasticsearch", "--host", url, "--retention", "30d", "--json"]) == 0

    assert states(capsys.readouterr().out)[f"retention of {STREAM}"] == "updated"
    assert cluster.kept[f"/_data_stream/{STREAM}/_lifecycle"] == {"data_retention": "30d"}


def test_a_lifecycle_policy_stands_in_for_the_streams_own_lifecycle() -> None:
    cluster = Cluster()
    with wire(cluster) as url:
        assert run(["setup", "elasticsearch", "--host", url, "--ilm", "--retention", "30d"]) == 0

    template = cluster.kept["/_index_template/logs-vllm_watchdog"]["template"]
    policy = cluster.kept["/_ilm/policy/vllm-watchdog"]["policy"]
    assert template["settings"]["index"]["lifecycle"] == {"name": "vllm-watchdog"}
    assert "lifecycle" not in template
    assert policy["phases"]["delete"]["min_age"] == "30d"


def test_a_key_is_made_with_the_daemons_rights_in_a_file_for_its_owner_alone(
    tmp_path: Path,
) -> None:
    cluster, key = Cluster(), tmp_path / "key"
    with wire(cluster) as url:
        assert run(["setup", "elasticsearch", "--host", url, "--create-api-key", str(key)]) == 0

    assert key.read_text() == "aWQ6a2V5\n"
    assert key.stat().st_mode & 0o777 == 0o600
    indices = cluster.keys[0]["role_descriptors"]["vllm-watchdog"]["indices"]
    assert indices[0]["names"] == ["logs-vllm_watchdog-*"]


def test_credentials_come_from_files_and_are_never_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, secret = Cluster(), tmp_path / "secret"
    secret.write_text("hunter2\n")
    with wire(cluster) as url:
        words = ["setup", "elasticsearch", "--host", url, "--username", "u", "--password-file"]
        assert run([*words, str(secret)]) == 0

    shown = capsys.readouterr()
    assert cluster.authorization == {"Basic dTpodW50ZXIy"}
    assert "hunter2" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no address"),
        (["--host", "http://127.0.0.1:1"], "refused"),
        (["--host", "http://127.0.0.1:1", "--retention", "soon"], "write 90d"),
        (["--host", "http://127.0.0.1:1", "--username", "u", "--password-file", "/nonexistent"],
         "cannot be read"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["setup", "elasticsearch", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_refusal_is_told_in_the_servers_words(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = Reply(403, {"error": {"type": "security_exception", "reason": "action is denied"}})
    with wire(lambda asked: refusal) as url:
        assert run(["setup", "elasticsearch", "--host", url]) == 2

    assert "403 action is denied" in capsys.readouterr().err


@pytest.mark.peer
def test_a_real_server_takes_the_templates_and_says_what_it_lacks(
    elasticsearch: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["setup", "elasticsearch", "--host", elasticsearch.url, "--json"]
    assert run(words) == 0
    capsys.readouterr()
    assert run(words) == 0

    told = states(capsys.readouterr().out)
    assert told["index template logs-vllm_watchdog"] == "unchanged"
    assert told["index template logs-vllm"] == "unchanged"
    assert told[f"data stream {STREAM}"] in ("unchanged", "not supported")


# Kibana


class Kibana:
    """A Kibana as its saved objects API is documented."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self.paths: list[str] = []

    def __call__(self, asked: Request) -> Reply:
        self.paths.append(asked.path)
        if asked.headers.get("kbn-xsrf") is None:
            return Reply(400, {"message": "Request must contain a kbn-xsrf header."})
        if asked.path.endswith("/_bulk_get"):
            rows = [self.get(row) for row in json.loads(asked.body)]
            return Reply(200, {"saved_objects": rows})
        boundary = re.search("boundary=(.+)", asked.headers["Content-Type"])
        assert boundary is not None
        part = asked.body.split(f"--{boundary[1]}".encode())[1]
        lines = part.partition(b"\r\n\r\n")[2].strip().splitlines()
        for line in lines:
            each = json.loads(line)
            self.objects[each["type"], each["id"]] = each
        return Reply(200, {"success": True, "successCount": len(lines)})

    def get(self, row: dict[str, str]) -> Any:
        missing = {**row, "error": {"statusCode": 404, "error": "Not Found"}}
        return self.objects.get((row["type"], row["id"]), missing)


def test_objects_are_imported_once_and_then_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    kibana = Kibana()
    with wire(kibana) as url:
        assert run(["setup", "kibana", "--url", url, "--space", "ops", "--json"]) == 0
        first = states(capsys.readouterr().out)
        assert run(["setup", "kibana", "--url", url, "--space", "ops", "--json"]) == 0
        second = states(capsys.readouterr().out)

    assert len(kibana.objects) == len(saved_objects()) == len(first)
    assert set(first.values()) == {"created"}
    assert set(second.values()) == {"unchanged"}
    assert [path for path in kibana.paths if "_import" in path] == [
        "/s/ops/api/saved_objects/_import?overwrite=true"
    ]


def test_a_dry_run_imports_nothing() -> None:
    kibana = Kibana()
    with wire(kibana) as url:
        assert run(["setup", "kibana", "--url", url, "--dry-run"]) == 0

    assert kibana.objects == {}


def test_an_object_that_kibana_does_not_take_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(asked: Request) -> Reply:
        if asked.path.endswith("/_bulk_get"):
            return Reply(200, {"saved_objects": []})
        errors = [{"type": "search", "id": "x", "error": {"type": "unsupported_type"}}]
        return Reply(200, {"success": False, "successCount": 0, "errors": errors})

    with wire(answer) as url:
        assert run(["setup", "kibana", "--url", url]) == 2

    assert "did not take search x: unsupported_type" in capsys.readouterr().err


def test_the_file_for_an_import_by_hand_holds_the_same_objects() -> None:
    assert NDJSON.read_text() == ndjson(), "run `make docs`"


def test_every_reference_leads_to_an_object_that_comes_before() -> None:
    known: set[tuple[str, str]] = set()
    for each in saved_objects():
        assert {(r["type"], r["id"]) for r in each["references"]} <= known
        known.add((each["type"], each["id"]))


def fields_of(properties: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in properties.items():
        if "properties" in value:
            found |= fields_of(value["properties"], f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_each_column_of_a_search_is_in_the_mapping() -> None:
    templates = {EVENTS: index_template(), "": logs_template()}
    for search in SEARCHES:
        mappings = templates.get(search.view, templates[""])["template"]["mappings"]
        known = fields_of(mappings["properties"])
        for column in search.columns:
            assert column in known or column.startswith("vllm_watchdog.fields."), column


# The searches on a real server


def stored(
    number: int, kind: str, severity: str, labels: dict[str, str], **fields: Any
) -> StoredEvent:
    now = time.time()
    return StoredEvent(
        number,
        f"search-{number}",
        now,
        now,
        kind,
        severity,
        f"event {number}",
        json.dumps(labels),
        json.dumps(fields),
    )


SAMPLES = {
    "acts": stored(
        1, "remediation_ended", "info", {"service": "a"}, status="done", cause="card_lost"
    ),
    "faults": stored(2, "xid", "critical", {"card": "0000:53:00", "vendor": "nvidia"}),
    "refusals": stored(3, "remediation_refused", "info", {"service": "a"}, reason="cooldown"),
    "alerts": stored(4, "alert_firing", "critical", {"alertname": "CardLost", "service": "a"}),
    "engine-errors": stored(5, "oom_device", "warning", {"service": "a"}),
    "": stored(6, "daemon_started", "info", {}),
}


def bodies(texts: list[str]) -> list[Any]:
    """KQL as search bodies, by the query language's own library."""
    node, library = peers.require("node"), peers.folder() / "node_modules/@cybernetex/kbn-es-query"
    if not library.is_dir():
        pytest.skip("the library of Kibana's query language is not installed (make peers)")
    done = subprocess.run(
        [node, HERE / "search_body.js", library],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def ids(server: Server, stream: str, query: Any) -> set[str]:
    narrowed = {"bool": {"filter": [query, {"prefix": {"event.id": "search-"}}]}}
    found = server.ask("POST", f"/{stream}/_search", {"query": narrowed, "size": 100})
    return {hit["_source"]["event"]["id"] for hit in found["hits"]["hits"]}


@pytest.mark.peer
def test_each_saved_search_finds_what_it_names_and_nothing_else(
    elasticsearch: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    searches = [search for search in SEARCHES if search.view == EVENTS]
    queries = bodies([search.query for search in searches])
    run(["setup", "elasticsearch", "--host", elasticsearch.url])
    encoder = Encoder("node-1")
    for event in SAMPLES.values():
        elasticsearch.ask(
            "PUT", f"/{STREAM}/_create/{event.id}?refresh=true", encoder.document(event)
        )

    found = {s.id: ids(elasticsearch, STREAM, q) for s, q in zip(searches, queries, strict=True)}

    assert found == {search.id: {SAMPLES[search.id].id} for search in searches}


@pytest.mark.peer
def test_the_search_over_vllms_own_lines_finds_those_with_a_kind(
    elasticsearch: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    search = next(each for each in SEARCHES if each.view != EVENTS)
    query = bodies([search.query])[0]
    run(["setup", "elasticsearch", "--host", elasticsearch.url])
    for name, event in (("with", {"action": "oom_device"}), ("without", {})):
        line = {
            "@timestamp": "2026-01-02T03:04:05Z",
            "message": name,
            "fields": {"app": "vllm-ascend"},
            "event": event,
        }
        elasticsearch.ask("PUT", f"/logs-vllm-default/_create/{name}?refresh=true", line)

    hits = elasticsearch.ask("POST", "/logs-vllm-default/_search", {"query": query})["hits"]["hits"]
    assert [hit["_source"]["message"] for hit in hits] == ["with"]


def test_printing_asks_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["setup", "elasticsearch", "--print"]) == 0
    assert "PUT /_index_template/logs-vllm_watchdog" in capsys.readouterr().out
    assert run(["setup", "kibana", "--print"]) == 0
    assert capsys.readouterr().out == ndjson()


@pytest.mark.parametrize(
    "words", [["elasticsearch", "--host", "es:9200"], ["kibana", "--url", "es:9200"]]
)
def test_an_address_without_its_scheme_is_refused_with_the_right_form(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["setup", *words, "--dry-run"]) == 2
    assert "'es:9200' is no address (write http://es:9200 or https://…)" in capsys.readouterr().err
