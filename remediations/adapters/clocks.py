"""Lowered clocks of NVIDIA cards: which range, set, and taken back. One command each.

The driver tells nobody which range is locked, so the way back is its own default (``-rgc``); a
clock above ours proves that somebody else has changed it meanwhile.
"""

from __future__ import annotations

from ...watchdog.errors import NotSupported, SourceError
from ...watchdog.nvidia import messages
from ...watchdog.system import Finished, System
from .cardview import PATIENCE, look
from .privileged import Privileged

TOOL = "nvidia-smi"
LOWERED = 0.5  # of the highest clock: under this vLLM still answers, at about half the draw
_SLACK = 45  # MHz; clocks go in steps of 15, and the driver rounds
_QUERY = ("--query-supported-clocks=graphics", "--format=csv,noheader,nounits")


def clock_range(system: System, card: str) -> tuple[int, int]:
    """The lowest clock of a card, and the highest that is not above half of its best; in MHz.

    Raises NotSupported where the driver lists none, SourceError, CommandTimeout, OSError.
    """
    answer = Privileged.run(system, (TOOL, "-i", f"{card}.0", *_QUERY), PATIENCE)
    said = answer.text.split()
    clocks = sorted({int(word) for word in said if word.isdigit() and len(word) < 6})
    if answer.code != 0:
        raise SourceError(f"nvidia-smi: {_why(answer)}")
    if not clocks or any(not word.isdigit() for word in said):
        raise NotSupported(f"{card}: the driver lists no clocks that can be set")
    top = max(clock for clock in clocks if clock <= max(clocks[-1] * LOWERED, clocks[0]))
    return clocks[0], top


def lock(system: System, card: str, low: int, high: int) -> None:
    """Keep a card's clock in a range. Raises NotSupported, SourceError, CommandTimeout, OSError."""
    _change(system, card, f"-lgc={low},{high}")


def unlock(system: System, card: str) -> None:
    """Give a card its clock back. Raises as ``lock`` does."""
    _change(system, card, "-rgc")


def _change(system: System, card: str, option: str) -> None:
    word, _, value = option.partition("=")
    command = (TOOL, "-i", f"{card}.0", word, *((value,) if value else ()))
    answer = Privileged.run(system, command, PATIENCE)
    if "not supported" in answer.text.lower():  # said with exit status 0, too
        raise NotSupported(f"{card}: the driver cannot set its clocks")
    if answer.code != 0:
        raise SourceError(f"nvidia-smi {word}: {_why(answer)}")


def _why(answer: Finished) -> str:
    return messages.failure(answer.text) or messages.exit_words(answer.code)


def within(system: System, card: str, high: int) -> bool | None:
    """Whether a card runs no faster than so many MHz just now; None where that is not told."""
    seen = look(system, [card], {card: "nvidia"}).there(card)
    if seen is None or seen.clock is None:
        return None
    return seen.clock <= (high + _SLACK) * 1e6
