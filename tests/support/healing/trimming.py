"""Makes a small recording of a large one: ``python -m tests.support.healing.trimming FROM TO``.

With one folder: the decisions of a small one are written anew, for a change of what is told. Only the documented rules, the series that deciding reads, and the time until the last act ended and
its alerts are gone. What is decided on them is computed anew; the acts must be those of the whole.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm_watchdog.watchdog.model import Batch, Inputs, Page, Tick
from vllm_watchdog.watchdog.recording import Recording
from vllm_watchdog.watchdog.replay import engine_of, replay
from vllm_watchdog.watchdog.wire import InputsWriter, decisions_doc, dumps

RULES = "00-documented.yaml"
AFTER = 3.0  # seconds kept after the last thing that counts
EVENTS = 200  # characters of an event's text
DROPPED = frozenset({"host", "nvidia_smi/links", "l3", "numa", "fragmentation"})
REPOSITORY = Path(__file__).parents[3]


def trim(source: Path, target: Path) -> None:
    """Write the small recording; a link in its ``rules`` leads to the copy that all share."""
    whole = [(tick, inputs) for tick, inputs, _ in Recording(source).inputs()]
    wanted = replay(source).doc
    shutil.rmtree(target, ignore_errors=True)
    (target / "rules").mkdir(parents=True)
    shared = target.parent / "rules" / RULES
    shared.parent.mkdir(exist_ok=True)
    if not shared.exists():
        shutil.copy(source / "rules" / RULES, shared)
    (target / "rules" / RULES).symlink_to(f"../../rules/{RULES}")
    manifest = json.loads((source / "manifest.json").read_text())
    manifest["rules"] = [RULES]
    (target / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    shutil.copy(source / "config.yaml", target)
    for name in ("inputs.jsonl", "decisions.jsonl"):
        (target / name).touch()
    writer, names = InputsWriter(), _names(shared)
    with (target / "inputs.jsonl").open("w") as told:
        for tick, inputs in _until(whole):
            small = replace(inputs, batches=tuple(_small(inputs, names)))
            told.write(writer.line(tick, small) + "\n")
    decide(target)
    again = _acts(replay(target).doc)
    assert again == _acts(wanted), (again, _acts(wanted))


def decide(folder: Path) -> None:
    """Write what is decided on a recording's inputs."""
    recording = Recording(folder)
    engine = engine_of(recording)
    with (folder / "decisions.jsonl").open("w") as out:
        for tick, inputs, _ in recording.inputs():
            out.write(dumps(decisions_doc(tick, engine.step(tick, inputs))) + "\n")


def _names(rules: Path) -> frozenset[str]:
    """The metric names that rules and deciding read."""
    texts = [rules.read_text()]
    for folder in ("cases", "diagnosis", "guard"):
        texts += [path.read_text() for path in (REPOSITORY / "watchdog" / folder).glob("*.py")]
    texts.append((REPOSITORY / "watchdog/engine.py").read_text())
    return frozenset(re.findall(r"[a-zA-Z_][\w:]*", "\n".join(texts)))


def _until(whole: list[tuple[Tick, Inputs]]) -> Iterator[tuple[Tick, Inputs]]:
    """Up to a few seconds after the last outcome; all of it where no act was asked for."""
    ends = [tick.wall for tick, inputs in whole if inputs.outcomes]
    last = ends[-1] + AFTER if ends else whole[-1][0].wall
    for tick, inputs in whole:
        if tick.wall <= last:
            yield tick, inputs


def _small(inputs: Inputs, names: frozenset[str]) -> Iterator[Batch]:
    for batch in inputs.batches:
        if batch.collector not in DROPPED:
            pages = tuple(page for page in (_page(page, names) for page in batch.pages) if page)
            events = tuple(replace(e, message=e.message[:EVENTS]) for e in batch.events)
            yield replace(batch, pages=pages, events=events, checkpoint=None)


def _page(page: Page, names: frozenset[str]) -> Page | None:
    kept = [
        (key, value)
        for key, value in zip(page.keys, page.values, strict=True)
        if {dict(key)["__name__"], dict(key).get("kind", dict(key)["__name__"])} <= names
    ]
    if not kept:
        return None
    keys, values = zip(*kept, strict=True)
    return Page(keys, values)


def _acts(doc: dict[str, Any]) -> list[Any]:
    """What was asked for, by act and service."""
    return [(each["remediation"], each.get("service")) for each in doc["requests"]]


if __name__ == "__main__":
    if len(sys.argv) == 2:
        decide(Path(sys.argv[1]))
    else:
        trim(Path(sys.argv[1]), Path(sys.argv[2]))
