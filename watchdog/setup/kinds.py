"""The log patterns of vLLM as a script for Filebeat's `script` processor: the same kinds as ours.

Writes text; what a pattern is stands in rules/patterns.yaml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ..ecs import SEVERITIES
from ..logpatterns import Pattern, shipped

_NAMED = re.compile(r"\(\?P<\w+>")

_SCRIPT = r"""// Made from rules/patterns.yaml by `make docs`; do not edit.
//
// For the `script` processor of Filebeat or Elastic Agent: names the kind of a vLLM log line in
// event.action, its weight in event.severity (1 info, 2 warning, 3 critical), its level in
// log.level. The first pattern that matches a line counts; of a record of several lines (a
// traceback) the first line that names a cause, else the first that names a consequence. Lines at
// INFO and DEBUG count only where the pattern may be logged so, and then at the beginning of the
// message.

var PROCESS = "(?:\\((\\w+)(?: rank=\\d+)? pid=\\d+\\) )?";
var LEVEL = "(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d)";
var HEAD = new RegExp("^" + PROCESS + LEVEL + " \\[?[\\w./-]+:\\d+\\] ?");
var COLOUR = /\x1b\[[\d;]*[A-Za-z]/g;
var KINDS = [
%s
];

function has(text, literals) {
  for (var i = 0; i < literals.length; i++) {
    if (text.indexOf(literals[i]) >= 0) return true;
  }
  return literals.length === 0;
}

function kind(text) {
  var head = HEAD.exec(text);
  var level = head ? head[2] : "";
  var quiet = level === "INFO" || level === "DEBUG";
  var body = head ? text.slice(head[0].length) : text;
  for (var i = 0; i < KINDS.length; i++) {
    var known = KINDS[i];
    if (!has(text, known.literals) || (quiet && !known.info)) continue;
    var found = known.match.exec(text);
    if (!found || (known.unless && known.unless.test(text))) continue;
    if (quiet && body.indexOf(found[0]) !== 0) continue;
    return {kind: known.kind, severity: known.severity, level: level, cause: !known.consequence};
  }
  return {kind: "", severity: 0, level: level, cause: false};
}

function record(text) {
  var lines = text.replace(COLOUR, "").split("\n");
  var best = kind(lines[0]);
  for (var i = 1; i < lines.length && i < 500 && !best.cause; i++) {
    var next = kind(lines[i]);
    if (next.cause || (next.kind && !best.kind)) {
      next.level = best.level || next.level;
      best = next;
    }
  }
  return best;
}

function process(event) {
  var text = event.Get("message");
  if (typeof text !== "string") return;
  var found = record(text);
  if (found.level) event.Put("log.level", found.level.toLowerCase());
  if (found.kind) {
    event.Put("event.action", found.kind);
    event.Put("event.severity", found.severity);
  }
}
"""


def script(patterns: Iterable[Pattern] | None = None) -> str:
    """The script, with the patterns of vLLM's logs in their order."""
    chosen = [each for each in patterns or shipped() if "vllm" in each.sources]
    return _SCRIPT % ",\n".join(_row(each) for each in chosen)


def _row(pattern: Pattern) -> str:
    row: dict[str, Any] = {
        "kind": pattern.kind,
        "severity": SEVERITIES[pattern.severity],
        "info": pattern.info,
        "consequence": pattern.consequence,
        "literals": list(pattern.literals),
    }
    text = json.dumps(row, ensure_ascii=True)[:-1]
    text += f', "match": {_expression(pattern.match)}'
    if pattern.unless is not None:
        text += f', "unless": {_expression(pattern.unless)}'
    return f"  {text}}}"


def _expression(compiled: re.Pattern[str]) -> str:
    """The expression as a literal of ECMAScript 5.1, without names."""
    source = compiled.pattern
    flags = "i" if source.startswith("(?i)") else ""
    source = _NAMED.sub("(?:", source.removeprefix("(?i)"))
    escaped = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", source)
    return f"/{escaped}/{flags}"
