"""The two lists of expressions beside this file, and what promtool says of expressions."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def right() -> list[str]:
    """Expressions that are good."""
    return [line.replace("¶", "\n") for line in _lines("right_expressions.txt")]


def wrong() -> list[tuple[str, str]]:
    """Expressions that are none, each behind the ``line:column`` of its fault."""
    split = (line.split(maxsplit=1) for line in _lines("wrong_expressions.txt"))
    return [(place, text.replace("¶", "\n")) for place, text in split]


def _lines(name: str) -> list[str]:
    text = (HERE / name).read_text(encoding="utf-8")
    head, _, body = text.partition("\n---\n")
    assert head
    return [line for line in body.splitlines() if line]


def refusals(promtool: Path, expressions: list[str], folder: Path) -> list[str | None]:
    """What promtool has against each expression (None: nothing). One process for all."""
    rules = [{"record": f"r{number}", "expr": text} for number, text in enumerate(expressions)]
    file = folder / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    command = [promtool, "check", "rules", "--lint=none", file]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = dict(re.findall(r'rule \d+, "r(\d+)": (.*)', ended.stdout + ended.stderr))
    assert bool(said) == bool(ended.returncode)
    return [said.get(str(number)) for number in range(len(expressions))]
