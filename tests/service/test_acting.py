"""The real process acts: what it decided is in the journal before it is done, and outlives a kill."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.support.daemon import Running, command, daemon, wait_for

RULES = """\
groups:
  - name: g
    rules:
      - alert: Always
        expr: service_up == 0
        labels: {service: chat}
        annotations: {summary: "always"}
"""


def acting(folder: Path) -> dict[str, Any]:
    """A service without a front: to drain it is declined, and a person is paged."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yaml").write_text(RULES)
    return {
        "mode": "act",
        "interval": "250ms",
        "rules": {"files": [str(folder / "rules.yaml")]},
        "services": {"chat": {"url": "http://127.0.0.1:9", "probe": {"kind": "none"}}},
        "policies": [{"when": ["Always"], "do": ["drain", "page"]}],
    }


def events(node: Running, kind: str) -> list[Any]:
    done = command("history", "--kind", kind, "--json", "--url", node.url)
    return list(json.loads(done.stdout or b"[]"))


def acts(folder: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(folder / "state" / "journal.db") as connection:
        rows = connection.execute("SELECT status, detail FROM acts ORDER BY began").fetchall()
    connection.close()
    return rows


def test_an_act_that_does_not_fit_is_declined_and_a_person_paged(tmp_path: Path) -> None:
    with daemon(tmp_path, acting(tmp_path)) as node:
        wait_for(lambda: "RemediationFailed" in node.alerts().get("firing", set()))
        figures = node.server.get("/api/v1/query?query=watchdog_remediation_outcomes_total")

    assert [status for status, _ in acts(tmp_path)] == ["declined"]
    assert "declined" in json.dumps(figures)


def test_attempts_and_the_hold_file_outlive_a_kill(tmp_path: Path) -> None:
    with daemon(tmp_path, acting(tmp_path)) as node:
        wait_for(lambda: events(node, "page_sent"))  # as the journal has it
        node.server.process.kill()
        node.server.process.wait()
    (tmp_path / "state" / "hold").touch()

    with daemon(tmp_path, acting(tmp_path)) as node:
        wait_for(lambda: "RemediationFailed" in node.alerts().get("firing", set()))
        wait_for(lambda: events(node, "hold_file"))

    assert len(acts(tmp_path)) == 1
