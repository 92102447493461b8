"""Whether an act helped, seen as users see it: real requests by their own way in."""

from __future__ import annotations

from collections.abc import Callable

from ..acting import ActCase
from ..completion import completion
from ..model import Json
from ..roles import changed, effective
from .tools import Tools

IN_A_ROW = 2  # answers: one may come from a connection that was open before
PAUSE = 0.5  # seconds between two requests


class Unproved(Exception):
    """No answer as it should be. ``untold``: the server answers and will not talk to us."""

    def __init__(self, text: str, *, untold: bool) -> None:
        super().__init__(text)
        self.untold = untold


def prove(tools: Tools, case: ActCase, sets: Json, end: float, honour: Callable[[], None]) -> None:
    """Ask until two answers in a row are right, until the monotonic time ``end``; ``sets`` is what
    the act changed of the service's mode. Raises Unproved."""
    assert case.settings is not None
    clock = tools.system.clock
    service = effective(case.settings, changed(case.mode, sets, 0.0, ""))
    url = service.front.url if service.front is not None else service.url
    right = 0
    while right < IN_A_ROW:
        honour()
        left = end - clock.mono()
        limit = max(min(service.probe.timeout, left), 1.0)
        finding = completion(tools.system, url.rstrip("/"), service, timeout=limit)
        right = right + 1 if finding.verdict == "ok" and finding.canary is not False else 0
        if right == IN_A_ROW:
            return
        if left <= 0:
            why = finding.reason or ("a wrong answer" if finding.verdict == "ok" else "")
            text = f"no right answer through {url}: {finding.verdict} {why}".rstrip()
            raise Unproved(text, untold=finding.verdict == "unknown")
        clock.sleep(PAUSE)
