"""One act from its first step to its end: ask, do, wait, take back what must not stay.

It walks the plan and journals; what the steps do is the remediation's, what follows the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..acting import ActCase, Done, Remediation, Step
from ..errors import Permanent, Temporary, WatchdogError
from ..intents import StepRow
from ..model import Outcome, OutcomeStatus
from .proof import Unproved, prove
from .tools import Tools
from .words import End, Leave, StopWord, first_line

AGAIN = 10.0  # seconds until what ends by itself is looked at again
PATIENCE = 10.0  # seconds after a restart for a step that was begun to be done, or be told of
ENDING = ""  # the row that says how an act ends: from then on it is only taken back
_ERRORS = (WatchdogError, OSError)


@dataclass(slots=True)
class Carrying:
    """An act under way. ``rows``: its steps as journaled before a crash; ``seconds``: how long it
    may last from now on; ``forbidden``: why it must not go on, empty where it may."""

    tools: Tools
    remediation: Remediation
    case: ActCase
    word: StopWord
    seconds: float
    rows: dict[str, StepRow] = field(default_factory=dict)
    forbidden: str = ""
    _steps: Sequence[Step] = ()
    _ours: list[Step] = field(default_factory=list)
    _reached: list[str] = field(default_factory=list)
    _sets: dict[str, Any] = field(default_factory=dict)
    _gives: dict[str, Any] = field(default_factory=dict)
    _end: float = 0.0
    _again: float = 0.0

    def run(self) -> Outcome | None:
        """Carry it out. None: the daemon ends, and the act goes on with the next one."""
        clock = self.tools.system.clock
        begin = clock.mono()
        self._end = begin + self.seconds
        try:
            status, detail = self._carried()
        except Leave:
            self._take_back(temporary=True)
            return None
        duration = round(clock.mono() - begin, 3)
        return Outcome(self.case.request, status, detail, duration, self._again)

    def _carried(self) -> tuple[OutcomeStatus, str]:
        try:
            declined = self._prepared()
            if declined:
                return "declined", declined
            self._forward()
        except End as end:
            return end.status, self._ended(end)
        except Leave:
            raise
        except Exception as error:  # noqa: BLE001 (boundary: a remediation's run)
            fault = End("failed", f"{type(error).__name__}: {first_line(error)}")
            return fault.status, self._ended(fault)
        return "done", f"{len(self._reached)} steps"

    def _prepared(self) -> str:
        """Look before anything is touched; the reason to decline, or nothing."""
        system, case = self.tools.system, self.case
        begun = any(row.state != "found" for row in self.rows.values())
        if not begun and not self.forbidden:
            self._honour()
            try:
                declined = self.remediation.precheck(system, case)
            except Temporary as reason:
                self._again = reason.delay or AGAIN
                return first_line(reason)
            except _ERRORS as error:
                return first_line(error)
            if declined:
                return declined
        try:
            self._steps = tuple(self.remediation.plan(system, case))
        except _ERRORS as error:
            raise End("failed", f"it cannot be planned: {first_line(error)}") from error
        return ""

    def _forward(self) -> None:
        ending = self.rows.get(ENDING)
        if self.forbidden or (ending is not None and ending.state != "done"):
            self._remember()
            if ending is not None and ending.state in ("failed", "timed_out", "cancelled"):
                raise End(ending.state, "interrupted while it was taken back")  # type: ignore[arg-type]
            raise End("unknown", self.forbidden or "interrupted while it was taken back")
        if ending is None:
            for step in self._steps:
                self._walk(step)
            self._note(ENDING, "done")
        else:
            self._remember()
        self._take_back(temporary=True)
        if self.remediation.verified and self.case.settings is not None:
            self._verify()

    def _remember(self) -> None:
        """What was done before a crash, without touching anything."""
        for step in self._steps:
            row = self.rows.get(step.name)
            if row is not None and row.state in ("started", "done"):
                self._ours.append(step)
                if row.state == "done":
                    self._reached.append(step.name)
                    self._stand(step)

    # One step

    def _walk(self, step: Step) -> None:
        self._honour()
        row = self.rows.get(step.name)
        before = row.state if row is not None else ""
        if before == "failed":
            if step.must:
                raise End("failed", f"step {step.name} had failed")
            return
        begun = before in ("started", "done")
        if begun:
            self._ours.append(step)
        try:
            state = self._ask(step, futile="" if begun or step.do is None else "no")
            if begun:
                state = self._told_again(step, state, begun=before == "started")
        except End as end:
            self._missed(step, end)
            return
        if state == "yes":
            self._reach(step, "done" if step in self._ours else "found", 0.0)
            return
        if state == "unknown" and begun:
            self._missed(step, End("unknown", f"nobody can tell whether {step.name} is done"))
            return
        begin = self.tools.system.clock.mono()
        try:
            self._do(step)
            self._await(step)
        except End as end:
            self._missed(step, end)
        else:
            self._reach(step, "done", self.tools.system.clock.mono() - begin)

    def _told_again(self, step: Step, state: Done, *, begun: bool) -> Done:
        """After a restart the answer may take a moment: who is asked may be starting, too, and what
        was begun before it may still be on its way."""
        clock = self.tools.system.clock
        end = clock.mono() + min(PATIENCE, step.deadline)
        while state == "unknown" or (begun and state == "no"):
            if clock.mono() >= end:
                break
            self._honour()
            clock.sleep(max(step.poll, 0.05))
            state = self._ask(step)
        return state

    def _do(self, step: Step) -> None:
        self._note(step.name, "started", step)
        if step not in self._ours:
            self._ours.append(step)
        if step.do is None:
            return
        self._turn(step)
        try:
            step.do(self.tools.system)
        except _ERRORS as error:
            raise End("failed", f"step {step.name}: {first_line(error)}") from error

    def _await(self, step: Step) -> None:
        """Until it is done. A person's word ends the wait, the deadline ends it as not done."""
        clock = self.tools.system.clock
        end = min(clock.mono() + step.deadline, self._end)
        while (state := self._ask(step)) != "yes":
            left = end - clock.mono()
            if left <= 0 and state == "unknown":
                raise End("unknown", f"nobody can tell whether {step.name} is done")
            if left <= 0:
                raise End("timed_out", f"step {step.name} is not done within {step.deadline:g} s")
            self._honour()
            clock.sleep(min(max(step.poll, 0.02), max(left, 0.02)))

    def _ask(self, step: Step, futile: Literal["", "no"] = "") -> Done:
        """Whether it is done. Raises End where waiting has become futile, unless that only says
        that it must be begun."""
        try:
            return step.done(self.tools.system)
        except Permanent as error:
            if futile:
                return futile
            raise End("failed", f"step {step.name}: {first_line(error)}") from error
        except _ERRORS:
            return "unknown"

    def _turn(self, step: Step) -> None:
        """Tell when the instance that users' service goes by is ended, and when it is started."""
        serving = self.case.mode.serving
        if step.turns and self._sets.get("serving", serving) == serving:
            self.tools.turned(self.case, step.turns, step.name)

    def _reach(self, step: Step, state: str, seconds: float) -> None:
        if step.turns == "on":
            self._turn(step)  # begun before a crash, it may not have been told
        self._note(step.name, state, step)
        self._reached.append(step.name)
        self._stand(step)
        how = "was so already" if state == "found" else f"done in {seconds:.1f} s"
        self._tell(step, state, how, seconds=round(seconds, 3))

    def _stand(self, step: Step) -> None:
        self._sets.update(step.sets)
        self._gives.update(step.gives)
        self.tools.stands(self.case, step.sets, moved=step.moves_traffic, step=step.name)

    def _missed(self, step: Step, end: End) -> None:
        """A step came to nothing: the act ends with it, unless it goes without."""
        if end.status == "cancelled":
            raise end
        self._note(step.name, "failed", step)
        self._tell(step, "failed", end.detail, must=step.must)
        if step.must:
            raise end

    # Ends

    def _honour(self) -> None:
        """A person's word wins at once; a daemon that ends lets go."""
        if self.tools.leaving.is_set():
            raise Leave
        why = self.word.why or ("the hold file is there" if self.tools.held else "")
        if why:
            raise End("cancelled", why)

    def _verify(self) -> None:
        """Success is what users see: two real answers one after the other, by their way in."""
        try:
            prove(self.tools, self.case, self._sets, self._end, self._honour)
        except Unproved as reason:
            status: OutcomeStatus = "unknown" if reason.untold else "timed_out"
            raise End(status, str(reason)) from reason

    def _ended(self, end: End) -> str:
        """Take back what must not stay; the sentence that says what was done and what was not."""
        undo = end.status in ("failed", "timed_out")
        self._note(ENDING, end.status)
        kept = self._take_back(temporary=not undo)
        parts = [end.detail]
        names = [step.name for step in self._steps]
        left = [name for name in names if name not in self._reached]
        if end.status in ("cancelled", "unknown"):
            parts.append("done: " + (", ".join(self._reached) or "nothing"))
            parts.append("not done: " + (", ".join(left) or "nothing"))
        if kept:
            parts.append("could not be taken back: " + ", ".join(kept))
        return "; ".join(parts)

    def _take_back(self, *, temporary: bool) -> list[str]:
        """Undo our own steps in reverse, or the temporary ones only; those that could not be."""
        kept = []
        for step in reversed(self._ours):
            row = self.rows.get(step.name)
            undone = row is not None and row.state == "undone"
            mine = step.temporary or (not temporary and step.name in self._reached)
            if step.undo is None or undone or not mine:
                continue
            try:
                step.undo(self.tools.system)
            except _ERRORS as error:
                kept.append(f"{step.name} ({first_line(error)})")
                self._tell(step, "not_undone", f"cannot be taken back: {first_line(error)}")
            else:
                self._note(step.name, "undone", step)
                before = {name: getattr(self.case.mode, name) for name in step.sets}
                self.tools.stands(self.case, before, step=step.name)
                self._tell(step, "undone", "taken back")
        return kept

    def _note(self, name: str, state: str, step: Step | None = None) -> None:
        sets, moved = (step.sets, step.moves_traffic) if step is not None else ({}, False)
        row = StepRow(name, state, self.tools.system.clock.wall(), dict(sets), moved)
        self.rows[name] = row
        self.tools.note(self.case, row)

    def _tell(self, step: Step, state: str, how: str, **more: object) -> None:
        fields = {"step": step.name, "state": state, **self._gives, **more}
        if step.moves_traffic and state in ("done", "found"):
            fields["moves_traffic"] = True
        self.tools.tell(self.case, "remediation_step", f"step {step.name} {how}", fields)
