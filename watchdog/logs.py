"""Sorts log text into events: which lines mean something, and what they say.

Bytes go in, records come out; one pass over blocks finds the lines that can mean something, only
those are read. Nothing is opened, followed or told here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timezone, tzinfo
from functools import lru_cache

from . import logcann, logdevices, logmemory, logserver
from .logcann import Failure
from .logdevices import raw_kind
from .loggroups import FAR, Clock, Groups, Happening
from .logheads import NO_HEAD, Calendar, Head, head
from .logpatterns import Pattern, shipped
from .logrecords import MAX_LINE, MAX_TEXT, Around, Found, LogRecord, exception, groups
from .logscan import Scanner, scanner
from .logtext import is_plain, line_text, without_nul, without_prompts
from .logwriters import Writers

BLOCK = 1024 * 1024  # bytes scanned at once
TRACEBACK = 200  # lines of a traceback that are looked at for its exception
LINE = 100  # bytes of a line, where lines are not counted
BELOW = 32 * 1024  # bytes below a line that can tell what it means, as long as they come at once

_FINISHERS = {
    **logcann.FINISHERS,
    **logdevices.FINISHERS,
    **logmemory.FINISHERS,
    **logserver.FINISHERS,
}
_FOLDED = re.compile(r"\[repeated (\d+)x across cluster\]")
_ECHO = re.compile(r"\s*(?:raise\b|f?[\"'])")


@dataclass(slots=True)
class _Echo:
    """Source text in a traceback whose exception line has not been seen yet."""

    event: Happening
    pid: int | None


@lru_cache(maxsize=8)
def _choice(source: str | None) -> tuple[tuple[Pattern, ...], tuple[str, ...]]:
    """The patterns of a source, and all their literals, each once."""
    chosen = [p for p in shipped() if source is None or source in p.sources]
    # The kernel's own lines quote sentences that mean something else in a server's log.
    patterns = tuple(sorted(chosen, key=lambda pattern: not pattern.kernel))
    literals = dict.fromkeys(literal for pattern in patterns for literal in pattern.literals)
    return patterns, tuple(literals)


@dataclass
class Classifier:
    """Reads one log from its beginning to its end.

    ``source`` is vllm, kernel, ascend or None (all patterns). ``zone`` is the writer's zone where
    lines name none; ``reference`` (Unix seconds) gives the year where they have none. ``detail``
    bounds the work of a flood: after so many lines of a pattern its further ones are counted only,
    until ``renew`` (0: no bound); their kinds are in ``passed``, and line numbers are estimates
    then. ``recognised`` counts the lines that meant something. ``scan`` makes the scanner (for
    tests and for machines without hyperscan).
    """

    source: str | None = None
    zone: tzinfo = timezone.utc
    reference: float | None = None
    detail: int = 0
    scan: Callable[[tuple[str, ...]], Scanner] = scanner
    passed: Counter[str] = field(default_factory=Counter)
    recognised: int = 0

    _rest: bytes = b""
    _line: int = 0
    _groups: Groups = field(default_factory=Groups)
    _echoes: list[_Echo] = field(default_factory=list)
    _writers: Writers = field(default_factory=Writers)
    _clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self._patterns, self._literals = _choice(self.source)
        self._scanner = self.scan(self._literals)
        number = {literal: place for place, literal in enumerate(self._literals)}
        self._of_literal: list[list[int]] = [[] for _ in self._literals]
        for place, pattern in enumerate(self._patterns):
            for literal in pattern.literals:
                self._of_literal[number[literal]].append(place)
        self._calendar = Calendar(self.zone, self.reference)
        self._left = [self.detail] * len(self._patterns)
        self._bytes = 0

    def renew(self) -> None:
        """Lines are read in full again, up to ``detail`` of each pattern."""
        self._left = [self.detail] * len(self._patterns)

    def feed(self, data: bytes, *, more: bool = False) -> list[LogRecord]:
        """Take a further piece of the log; return the events that it tells. A cut last line waits;
        with ``more``, the next piece comes at once and the last lines wait for it too."""
        data = self._rest + without_nul(data)
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) > BLOCK:
            data, cut = data[:MAX_LINE] + b"\n", MAX_LINE + 1  # a line without end
        elif more:
            cut = data.rfind(b"\n", 0, max(cut - BELOW, 0)) + 1
        self._rest = data[cut:]
        place = 0
        while place < cut:
            stop = cut
            if cut - place > BLOCK:
                stop = data.rfind(b"\n", place, place + BLOCK) + 1
                if stop <= place:
                    stop = data.find(b"\n", place) + 1
            self._read(data, place, stop)
            place = stop
        line = self._bytes // LINE if self.detail else self._line
        return self._groups.take_out(until=line - FAR if more else None)

    def finish(self) -> list[LogRecord]:
        """The log has ended: return what waited for more."""
        rest, self._rest = self._rest, b""
        if rest:
            self._read(rest, 0, len(rest))
        for echo in self._echoes:
            self._groups.keep(echo.event)
        self._echoes = []
        return self._groups.take_out(ended=True)

    # ---- lines ----

    def _read(self, data: bytes, begin: int, end: int) -> None:
        """Read the lines from ``begin`` to ``end``; those around them tell what they mean."""
        if self._echoes:
            self._settle_echoes(data, begin)
        if self.detail:
            for first, last, literals in self._scanner.hits(data[begin:end]):
                start, stop, places = begin + first, begin + last, self._places(literals)
                if not self._pass(data, start, stop, places):
                    line = (self._bytes + first) // LINE
                    self._look(data, start, stop, literals, places, line)
            self._bytes += end - begin
            return
        seen, line = begin, self._line
        for first, last, literals in self._scanner.hits(data[begin:end]):
            start, stop = begin + first, begin + last
            line += data.count(b"\n", seen, start)
            seen = start
            self._look(data, start, stop, literals, self._places(literals), line + 1)
        self._line = line + data.count(b"\n", seen, end)

    def _places(self, literals: list[int]) -> list[int]:
        """The patterns that a line with these literals can match, first ones first."""
        if len(literals) == 1:
            return self._of_literal[literals[0]]
        return sorted({place for literal in literals for place in self._of_literal[literal]})

    def _pass(self, block: bytes, start: int, stop: int, places: list[int]) -> bool:
        """Count a line of a pattern of which enough lines have been read in full.

        False where the line must be read: there is detail left, or it is not a plain one.
        """
        for place in places:
            if self._left[place] > 0 or stop - start > MAX_LINE:
                return False
            pattern = self._patterns[place]
            match = pattern.raw.search(block, start, stop)
            if match is None:
                continue
            if pattern.raw_unless is not None and pattern.raw_unless.search(block, start, stop):
                continue
            if not pattern.kernel and not is_plain(pattern, block, start, match.start()):
                return False
            if not pattern.within and (not pattern.cann or pattern.finish == "opens"):
                self.passed[raw_kind(pattern, match)] += 1
            self.recognised += 1
            return True
        return False

    def _look(
        self,
        block: bytes,
        start: int,
        stop: int,
        literals: list[int],
        places: list[int],
        line: int,
    ) -> None:
        """Read one line that holds some literal."""
        text = line_text(block[start:stop], [self._literals[literal] for literal in literals])
        begin: Head | None = None
        for place in places:
            pattern = self._patterns[place]
            match = pattern.match.search(text)
            if match is None or (pattern.unless is not None and pattern.unless.search(text)):
                continue
            if begin is None:
                begin = NO_HEAD if pattern.kernel else head(text)
            if begin.quiet and not (pattern.info and self._leads(pattern, text, begin)):
                continue
            fields = groups(match)
            if pattern.fields:
                fields = {**pattern.fields, **fields}
            found = Found(
                pattern,
                match,
                text,
                begin,
                pattern.kind,
                pattern.severity,
                fields,
                Around(block, start, stop),
                {"where": begin.where},
            )
            if self._take(found, line):
                self._left[place] -= 1
                self.recognised += 1
                return

    def _leads(self, pattern: Pattern, text: str, begin: Head) -> bool:
        """A quiet line counts only where the words stand at the beginning of its message."""
        if not pattern.kind or "vllm" not in pattern.sources:
            return True
        return pattern.match.match(text, begin.body) is not None

    def _take(self, found: Found, line: int) -> bool:
        """Make an event of a line, or add it to one; False where it means nothing after all."""
        pattern = found.pattern
        if not (pattern.indented or pattern.kernel):
            body = found.text[found.head.body :]
            if body.startswith(("  ", "\t")):
                return self._echo(found, body, line)
        time = self._time(found)
        if pattern.cann:
            return self._cann(found, line, time)
        finisher = _FINISHERS.get(pattern.finish)
        if finisher is not None:
            finisher(found)
        elif pattern.finish:
            self._writers.remember(found, time, self._groups)
        if not found.kind:
            return False
        if not pattern.kernel:
            self._who(found)
        self._groups.keep(self._event(found, line, time))
        return True

    def _time(self, found: Found) -> float | None:
        """The line's time; the clock, which tells lines apart, goes on without its year too."""
        time, seconds = self._calendar.read(found.text, found.head)
        if seconds is not None:
            self._clock = Clock(seconds)
        elif self._clock.own:
            self._clock = Clock(self._clock.seconds, own=False)
        return time

    def _who(self, found: Found) -> None:
        """What the head knows of the writer, where the text does not say otherwise."""
        begin, fields = found.head, found.fields
        if begin.pid is None and not begin.process and not found.pattern.info:
            begin = self._neighbour(found) or begin
        if begin.pid is not None:
            fields.setdefault("pid", begin.pid)
        for name, rank in begin.ranks.items():
            fields.setdefault(name, rank)
        if begin.process.startswith("Worker_"):
            fields.setdefault("worker", begin.process[7:])
        if found.pattern.traceback and found.around.traceback():
            ended = exception(found.around.after(TRACEBACK), begin.pid, begun=False)
            if ended is not None:
                fields.setdefault("error", ended[:200])

    def _neighbour(self, found: Found) -> Head | None:
        """The head of the next line, where that line is a piece of the same traceback."""
        for line in found.around.after(1):
            begin = head(line)
            if begin.pid is not None and line[begin.body :].startswith(("  File ", "Traceback ")):
                return begin
        return None

    def _event(self, found: Found, line: int, time: float | None) -> Happening:
        text = without_prompts(found.text)
        folded = _FOLDED.search(text) if "x across cluster]" in text else None
        return Happening(
            found.pattern,
            found.kind,
            found.severity,
            line,
            text[:MAX_TEXT],
            time,
            found.fields,
            found.marks,
            found.head.where,
            self._clock,
            text[found.head.body :],
            line,
            int(folded[1]) if folded else 0,
        )

    def _cann(self, found: Found, line: int, time: float | None) -> bool:
        """Add a line to the CANN failure that it belongs to, or begin one."""
        if self._groups.join_failure(found, line, time, self._clock):
            return True
        failure = Failure()
        failure.add(found)
        if "rank" not in failure.told and (who := self._neighbour(found)):
            failure.pid = who.pid if failure.pid is None else failure.pid
            failure.told = {**who.ranks, **failure.told}
        self._groups.begin_failure(self._event(found, line, time), failure)
        return True

    # ---- tracebacks ----

    def _echo(self, found: Found, body: str, line: int) -> bool:
        """Source text that a traceback prints: it counts only if its exception never comes."""
        if not _ECHO.match(body) or found.pattern.info:
            return False
        if exception(found.around.after(TRACEBACK), found.head.pid) is not None:
            return False
        time = self._time(found)
        self._who(found)
        found.fields["cut"] = True
        self._echoes.append(_Echo(self._event(found, line, time), found.head.pid))
        return True

    def _settle_echoes(self, data: bytes, begin: int) -> None:
        """Look for the exceptions that the last block left open."""
        for echo in self._echoes:
            below = Around(data, begin, begin - 1)
            if exception(below.after(2 * TRACEBACK), echo.pid) is None:
                self._groups.keep(echo.event)
        self._echoes = []


def classify(
    data: bytes,
    source: str | None = None,
    *,
    zone: tzinfo = timezone.utc,
    reference: float | None = None,
) -> list[LogRecord]:
    """The records of a whole log, in the order of their lines. See Classifier."""
    reader = Classifier(source, zone, reference)
    ended = data if data.endswith(b"\n") else data + b"\n"
    return sorted(reader.feed(ended) + reader.finish(), key=lambda record: record.line)
