"""Whether the window already covers what a rule looks back to: only then may an act rest on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..rulepack import Rule
from ..window import Window

_GRACE_MS = 60_000  # a metric that did not come for so long after its range is not awaited


@dataclass(slots=True)
class Warmth:
    """The rules that are warm; once warm, a rule stays so for the life of the process."""

    started_ms: int | None = None
    _warm: set[str] = field(default_factory=set)

    def start(self, ms: int) -> None:
        """Note the first evaluation."""
        if self.started_ms is None:
            self.started_ms = ms

    def covers(self, rule: Rule, window: Window, ms: int) -> bool:
        """Whether each metric of the rule reaches back over its range (without one: one sample).

        A metric that this node does not have is not awaited for longer than its range, unless all
        are missing.
        """
        if rule.key in self._warm:
            return True
        since = {name: self._since(name, window) for name in rule.ranges}
        if rule.ranges and not any(first is not None for first in since.values()):
            return False
        if not all(self._covered(since[name], back, ms) for name, back in rule.ranges.items()):
            return False
        self._warm.add(rule.key)
        return True

    def _covered(self, since: int | None, back: int, ms: int) -> bool:
        if since is not None:
            return since <= ms - back
        return self.started_ms is not None and ms - self.started_ms > back + _GRACE_MS

    def _since(self, name: str, window: Window) -> int | None:
        return window.since(name) if name else self.started_ms
