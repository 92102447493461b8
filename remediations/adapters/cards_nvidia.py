"""NVIDIA cards as ``nvidia-smi`` shows them now: one reading for an act, nothing remembered.

It asks the tool and hands its samples on; formats are read in ``watchdog/nvidia``. One lost card
can stop the whole query: the others are then asked one by one. It must not judge who may be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...watchdog.errors import CommandTimeout, SourceError
from ...watchdog.model import Sample
from ...watchdog.nvidia import links, messages, outputs, xml_log
from ...watchdog.nvidia.card import Card
from ...watchdog.nvidia.metrics import samples
from ...watchdog.system import Finished, System

TOOL = "nvidia-smi"
VENDOR = "nvidia"
_QUERY = (TOOL, "-q", "-x")


def read(system: System, cards: Iterable[str], timeout: float) -> tuple[list[Sample], bool]:
    """What the tool says of the node's cards, and whether a card that it lacks is not there.

    ``cards`` are asked one by one where the whole query fails for a lost one. ``timeout``:
    seconds for all of it. Raises NotSupported, CommandTimeout, SourceError, OSError.
    """
    deadline = system.clock.mono() + timeout
    wanted = tuple(cards)
    answer = system.runner.run(_QUERY, timeout=timeout)
    said = outputs.around(answer.stdout)
    gone = set(messages.lost_cards(said))
    good = gone or answer.code in (0, messages.INFOROM)
    if answer.truncated:
        raise SourceError("nvidia-smi: its answer does not end, it was cut")
    if good and outputs.is_whole_log(answer.stdout):
        log = xml_log.parse(answer.stdout)
        found = list(log.cards)
        whole = not gone and log.attached == len(found)
    elif gone:
        found, whole = [], False
    elif answer.code == messages.NO_DEVICES:
        return [], True
    else:
        why = messages.failure(said) or messages.exit_words(answer.code)
        raise SourceError(f"nvidia-smi: {why} (exit status {answer.code})")
    listed = {card.name for card in found}
    missing = [name for name in wanted if ":" in name and name not in listed | gone]
    found += _one_by_one(system, deadline, [] if whole else missing)
    if any(name.startswith("MIG-") for name in wanted):
        found = _named(system, deadline, found)
    told = [sample for card in found for sample in samples(card)]
    return [*told, *(sample for name in sorted(gone) for sample in outputs.gone(name))], whole


def _one_by_one(system: System, deadline: float, names: list[str]) -> Iterator[Card]:
    for at, name in enumerate(names):
        left = (deadline - system.clock.mono()) / (len(names) - at)
        if left <= 0:
            return
        answer = _answer(system, (*_QUERY, "-i", f"{name}.0"), left)
        if answer is None or answer.code not in (0, messages.INFOROM):
            continue
        try:
            log = xml_log.parse(answer.stdout)
        except SourceError:
            continue
        for card in log.cards:  # its place in this answer is not its index on the node
            if card.name == name:
                yield replace(card, fields={k: v for k, v in card.fields.items() if k != "index"})


def _answer(system: System, command: tuple[str, ...], timeout: float) -> Finished | None:
    try:
        return system.runner.run(command, timeout=timeout)
    except CommandTimeout as late:
        if late.stuck:
            raise
        return None


def _named(system: System, deadline: float, cards: list[Card]) -> list[Card]:
    """With the MIG instances named as ``-L`` names them; one without a name is left out."""
    answer = _answer(system, (TOOL, "-L"), max(deadline - system.clock.mono(), 0.1))
    uuids = links.mig_uuids(answer.text) if answer and answer.code == 0 else {}
    found = []
    for card in cards:
        home = card.fields.get("uuid", "")
        named = [(item, item.uuid or uuids.get((home, item.index), "")) for item in card.instances]
        kept = tuple(replace(item, uuid=uuid) for item, uuid in named if uuid)
        found.append(replace(card, instances=kept))
    return found


def paths(system: System, numbers: dict[str, str], timeout: float) -> list[Sample]:
    """How the cards are joined (``topo -m``); ``numbers``: card by the tool's index.

    Raises NotSupported, CommandTimeout, SourceError, OSError.
    """
    answer = system.runner.run((TOOL, "topo", "-m"), timeout=timeout)
    if answer.code != 0 or not links.is_matrix(answer.text):
        raise SourceError("nvidia-smi topo -m: no matrix")
    return list(links.matrix(answer.text, numbers))
