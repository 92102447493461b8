"""The command `faults`: what a fault code, a kind, an exit code or a log line means, for a person.

It asks no daemon and no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from ..errors import ConfigError, Place, Problem
from .meanings import Explained, explain, texts
from .output import AsJson, print_json, visible


def faults(
    question: Annotated[
        list[str],
        typer.Argument(metavar="CODE|TEXT", help="A code, a kind, `exit N`, or a line of a log."),
    ],
    as_json: AsJson = False,
) -> None:
    """Explain a fault: what it means, how grave it is, what the daemon does, what to do.

    Takes an Xid (79), an SXid (20034), an Ascend event (0x80e01801), a CANN code (507035, EL0004),
    a kind (oom_device), an exit code (`exit -9`) or a line of a log in quotes. What is not known is
    said so, with exit status 0; only an empty question is refused.
    """
    asked = " ".join(question).strip()
    if not asked:
        raise ConfigError(Problem(Place("faults"), "nothing is asked", "try: faults 79"))
    if question[0].startswith("-") and not question[0][1:].isdigit():
        raise ConfigError(Problem(Place("faults"), f"no such option: {question[0]}", "try: --help"))
    answers = list(explain(asked))
    if as_json:
        known = any(answer.known for answer in answers)
        documents = [answer.document() for answer in answers]
        print_json({"asked": asked, "known": known, "faults": documents})
        return
    if not answers:
        print(f"{visible(asked)}: not known. It is no code, kind or exit code of the vocabulary,")
        print("and no pattern of a log's lines fits it. A line of a log belongs in quotes.")
    for number, answer in enumerate(answers):
        print(("\n" if number else "") + "\n".join(_lines(answer)))


_TITLES: Mapping[str, str] = {
    "xid": "Xid {} (NVIDIA)",
    "sxid": "SXid {} (NVSwitch)",
    "ascend": "event {} (Ascend)",
    "cann": "CANN code {}",
    "kind": "kind {}",
    "exit": "exit {}",
    "line": "a line of kind {}",
}


def _lines(answer: Explained) -> Iterator[str]:
    """The answer for a person."""
    words, handling = texts(), answer.handling
    if answer.line:
        yield f"> {visible(answer.line)}"
    yield f"{_TITLES[answer.family].format(answer.code)}: {answer.meaning}"
    kind = f"{handling.kind}, {answer.category}" if answer.category else handling.kind
    yield f"  kind      {kind}"
    yield f"  severity  {handling.severity}"
    if answer.action:
        yield f"  advised   {words['actions'][answer.action]}"
    yield f"  daemon    {_daemon(answer)}"
    yield f"  ends by   {words['ends'][handling.ends]}"
    if answer.source:
        yield f"  source    {answer.source}"


def _daemon(answer: Explained) -> str:
    handling = answer.handling
    does = str(texts()["acts"][handling.act])
    if handling.act == "nothing":
        return does
    through = f"fires {answer.alert}; " if answer.alert else ""
    often, _, within = handling.counts.partition("/")
    when = f" (counts from {often} within {within} on)" if within else ""
    return f"{through}{does}{when}"
