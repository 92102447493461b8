"""Who carries acts out: a thread each, at most one a service; those of an earlier run first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..acting import ActCase, Remediation
from ..intents import Intent, StepRow
from ..model import Outcome, OutcomeStatus
from ..scheduler import Inbox
from .carrying import Carrying
from .tools import Tools
from .words import StopWord, first_line

OVERDUE = 60.0  # seconds past its deadline after which an act found open is not gone on with

Spawn = Callable[[str, Callable[[], None]], threading.Thread | None]


def thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """A thread of its own, not waited for at the process' end."""
    made = threading.Thread(target=run, name=name, daemon=True)
    made.start()
    return made


@dataclass(slots=True)
class _Act:
    case: ActCase
    word: StopWord
    thread: threading.Thread | None = None


class Workers:
    """The acts under way. ``remediations`` by name; ``spawn`` runs something beside the caller."""

    def __init__(
        self, tools: Tools, remediations: Mapping[str, Remediation], spawn: Spawn = thread
    ) -> None:
        self.tools = tools
        self._remediations, self._spawn = remediations, spawn
        self._acts: dict[str, _Act] = {}
        self._lock = threading.Lock()
        self._waiting: list[ActCase] = []

    @property
    def running(self) -> list[ActCase]:
        """The cases of the acts under way."""
        with self._lock:
            return [act.case for act in self._acts.values()]

    @property
    def waiting(self) -> Sequence[ActCase]:
        """Acts of an earlier run of which nothing was begun: whether they are still wanted shows
        when their alerts are known again."""
        return tuple(self._waiting)

    def begin(self, case: ActCase, rows: Sequence[StepRow] = (), forbidden: str = "") -> None:
        """Carry an act out, whose intent is on the disk. Its end is put into the inbox."""
        remediation = self._remediations.get(case.request.remediation)
        if remediation is None:
            self._never(case, "failed", f"{case.request.remediation} cannot be carried out here")
            return
        seconds = case.request.limit
        if rows:
            seconds -= max(self.tools.system.clock.wall() - case.began, 0.0)
        word = StopWord()
        known = {row.name: row for row in rows}
        carrying = Carrying(
            self.tools, remediation, case, word, max(seconds, 0.0), known, forbidden
        )
        key = case.name or case.request.id
        act = _Act(case, word)
        with self._lock:
            taken = key in self._acts
            if not taken:
                self._acts[key] = act
        if taken:
            self._never(case, "declined", f"an earlier act on {case.name} has not ended")
            return
        act.thread = self._spawn(f"act {case.request.id}", lambda: self._run(key, carrying))

    def _run(self, key: str, carrying: Carrying) -> None:
        try:
            outcome = carrying.run()
        except Exception as error:  # noqa: BLE001 (boundary: a remediation's way back)
            text = f"{type(error).__name__} while it was taken back: {first_line(error)}"
            outcome = Outcome(carrying.case.request, "unknown", text)
        with self._lock:
            self._acts.pop(key, None)
        if outcome is not None:
            self.tools.end(outcome)

    def _never(self, case: ActCase, status: OutcomeStatus, why: str) -> None:
        self.tools.end(Outcome(case.request, status, why))

    def halt(self, meant: Callable[[ActCase], bool], why: str) -> None:
        """A person's word to the acts that are meant."""
        with self._lock:
            for act in self._acts.values():
                if meant(act.case):
                    act.word.say(why)

    def leave(self, timeout: float) -> None:
        """The daemon ends: acts let go between two steps, and are gone on with at the next start.

        Waits at most ``timeout`` seconds for them.
        """
        self.tools.leaving.set()
        with self._lock:
            threads = [act.thread for act in self._acts.values() if act.thread is not None]
        end = self.tools.system.clock.mono() + timeout
        for each in threads:
            each.join(max(end - self.tools.system.clock.mono(), 0.0))

    def take_back(self, case: ActCase, timeout: float) -> None:
        """Carry a way back out at once, for at most ``timeout`` seconds: the daemon ends."""
        remediation = self._remediations.get(case.request.remediation)
        if remediation is None:
            return
        tools = replace(self.tools, intents=None, inbox=Inbox(), leaving=threading.Event())
        carrying = Carrying(tools, remediation, case, StopWord(), timeout)

        def run() -> None:
            carrying.run()

        made = self._spawn(f"act {case.request.id}", run)
        if made is not None:
            made.join(timeout)

    # After a start

    def recover(self, intents: Sequence[Intent], forbids: Callable[[ActCase], str]) -> None:
        """Settle what an earlier run left: ends that nobody heard are told again, acts begun are
        gone on with by looking, or handed to a person where ``forbids`` gives a reason."""
        for intent in intents:
            if intent.outcome is not None:
                self._tell_again(intent)
            elif not intent.steps:
                self._waiting.append(intent.case)
            else:
                self.begin(intent.case, intent.steps, self._late(intent) or forbids(intent.case))

    def _tell_again(self, intent: Intent) -> None:
        assert intent.outcome is not None
        for row in intent.steps:
            if row.state in ("done", "found"):
                self.tools.stands(intent.case, row.sets, step=row.name)
        self.tools.inbox.outcome(intent.outcome)

    def _late(self, intent: Intent) -> str:
        age = self.tools.system.clock.wall() - intent.case.began
        return "its time was over" if age > intent.case.request.limit + OVERDUE else ""

    def settle(self, verdict: Callable[[ActCase], str | None]) -> None:
        """Begin or let go the acts of which nothing was begun: ``verdict`` gives an empty text to
        begin, a reason to let go, None while it is not known."""
        for case in self._waiting[:]:
            word = verdict(case)
            if word is None:
                continue
            self._waiting.remove(case)
            if word:
                self._never(case, "cancelled", word)
            else:
                self.begin(case)
