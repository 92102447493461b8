"""The files for Filebeat, Elastic Agent and Logstash: their rules held against lines like vLLM's."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import peers
from vllm_watchdog.watchdog.ecs import SEVERITIES
from vllm_watchdog.watchdog.logpatterns import shipped
from vllm_watchdog.watchdog.setup.kinds import script

HERE = Path(__file__).parent
ELK = Path(__file__).parents[2] / "deploy" / "elk"
SCRIPT = ELK / "filebeat" / "vllm-kinds.js"
TRACEBACK = """\
(APIServer pid=7) INFO 01-02 03:04:04 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s
(EngineCore pid=9) ERROR 01-02 03:04:05 [core.py:7] EngineCore encountered a fatal error.
(EngineCore pid=9) ERROR 01-02 03:04:05 [core.py:7] Traceback (most recent call last):
(EngineCore pid=9) ERROR 01-02 03:04:05 [core.py:7]   File "core.py", line 3, in run
(EngineCore pid=9) ERROR 01-02 03:04:05 [core.py:7]     step()
(EngineCore pid=9) ERROR 01-02 03:04:05 [core.py:7] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has
nanobind: leaked 2 instances
(APIServer pid=7) INFO 01-02 03:04:06 [launcher.py:1] Shutting down FastAPI HTTP server.
"""


def kinds(messages: list[str]) -> list[dict[str, Any]]:
    node = peers.require("node")
    done = subprocess.run(
        [node, HERE / "kinds_of.js", SCRIPT],
        input=json.dumps(messages),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def multiline(file: str) -> dict[str, Any]:
    doc = yaml.safe_load((ELK / file).read_text())
    inputs = doc.get("filebeat.inputs") or doc["inputs"][0]["streams"]
    found: dict[str, Any] = inputs[0]["parsers"][0]["multiline"]
    return found


def records(text: str, rule: dict[str, Any]) -> list[str]:
    """What Filebeat makes of lines under ``match: after``, as its reference documents it."""
    assert (rule["match"], rule["negate"]) == ("after", False)
    found: list[str] = []
    for line in text.splitlines():
        if found and re.search(rule["pattern"], line):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


@pytest.mark.peer
def test_the_script_gives_each_example_line_the_kind_that_we_give_it() -> None:
    patterns = [each for each in shipped() if "vllm" in each.sources and each.kind]
    found = kinds([each.example for each in patterns])

    assert [(f.get("event.action"), f.get("event.severity")) for f in found] == [
        (each.kind, SEVERITIES[each.severity]) for each in patterns
    ]


@pytest.mark.peer
def test_a_line_that_only_speaks_of_a_fault_at_info_has_no_kind() -> None:
    line = "(APIServer pid=7) INFO 01-02 03:04:05 [api.py:1] a user asks about CUDA out of memory. Tried to allocate 2.00 GiB"

    assert kinds([line]) == [{"log.level": "info"}]


@pytest.mark.peer
def test_a_record_of_many_lines_is_named_by_its_cause() -> None:
    told = kinds(records(TRACEBACK, multiline("filebeat/filebeat.yml")))

    assert [each.get("event.action") for each in told] == [None, "oom_device", None, "lifecycle"]


@pytest.mark.parametrize("file", ["filebeat/filebeat.yml", "elastic-agent/elastic-agent.yml"])
def test_a_traceback_is_one_record(file: str) -> None:
    assert [text.count("\n") for text in records(TRACEBACK, multiline(file))] == [0, 4, 0, 0]


def test_the_script_is_made_from_the_patterns_as_they_are() -> None:
    assert SCRIPT.read_text() == script(), "run `make docs`"


def test_lines_carry_the_application_and_go_to_their_own_stream() -> None:
    beat = yaml.safe_load((ELK / "filebeat/filebeat.yml").read_text())
    first = beat["filebeat.inputs"][0]
    stream = next(p["add_fields"]["fields"] for p in first["processors"] if "add_fields" in p)

    assert first["fields"] == {"app": "vllm-ascend"}
    assert first["paths"] == ["/var/log/vllm/*.log"]
    assert stream == {"type": "logs", "dataset": "vllm", "namespace": "default"}


def test_the_daemons_own_log_is_read_as_json_with_its_dotted_names_opened() -> None:
    beat = yaml.safe_load((ELK / "filebeat/filebeat.yml").read_text())
    own = beat["filebeat.inputs"][1]["parsers"][0]["ndjson"]

    assert own == {"target": "", "overwrite_keys": True, "add_error_key": True, "expand_keys": True}


def test_logstash_listens_on_5044_and_its_braces_are_even() -> None:
    text = (ELK / "logstash/vllm-watchdog.conf").read_text()
    code = re.sub(r'"(?:[^"\\]|\\.)*"|#.*', "", text)

    assert re.search(r"beats \{\s+port => 5044\s+\}", text)
    assert code.count("{") == code.count("}")
    assert re.findall(r"^(\w+) \{", text, re.MULTILINE) == ["input", "filter", "output"]
