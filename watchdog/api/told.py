"""What a command changed, said to the person who gave it, by how the node stood and stands now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..wire import moment
from .standing import Act, Standing


def told(verb: str, args: dict[str, Any], before: Standing, after: Standing) -> list[str]:
    """One line for each thing that a command changed or left as it is."""
    return list(_TELLERS[verb](args, before, after))


def _tell_pause(args: dict[str, Any], before: Standing, after: Standing) -> Sequence[str]:
    service = args["service"]
    until = after.paused.get(service)
    end = f"until {moment(until)}" if until is not None else "until somebody resumes it"
    lines = [f"healing of {service or 'every service'} is paused {end}; watching goes on"]
    lines += [_stopped(act, after) for act in before.acts if service in ("", act.service)]
    return lines


def _stopped(act: Act, after: Standing) -> str:
    """What a person's word did to an act that was under way."""
    what = f"{act.act} of {act.service or act.case}"
    if any(each.id == act.id for each in after.acts):
        return f"{what} is stopped after its present step"
    return f"{what} is stopped"


def _tell_resume(args: dict[str, Any], before: Standing, after: Standing) -> Sequence[str]:
    service = args.get("service", "")
    lines = [f"healing of {service or 'every service'} goes on"]
    drained = [each.service for each in before.waiting if each.back and each.act == "drain"]
    own = [name for name in drained if service in ("", name)]
    lines += [f"the front of {name} takes requests again" for name in own]
    if not service and before.breaker and not after.breaker:
        lines.append(f"the breaker is closed (it was open: {before.breaker})")
    if not service and before.forced and not after.forced:
        lines.append(f"the node acts again (it only observed: {before.forced})")
    if service and "" in after.paused:
        lines.append("but all services are still paused: resume without --service ends that")
    if after.held:
        lines.append("but the hold file is there: nothing is done until it is removed")
    if after.mode == "observe":
        lines.append("the daemon's mode is observe: it does nothing by itself")
    return lines


def _tell_approve(args: dict[str, Any], before: Standing, after: Standing) -> Sequence[str]:
    asked = next(each for each in before.waiting if each.id == args["id"])
    what = f"{asked.act} for {asked.service or asked.id} ({asked.cause})"
    if any(act.case == asked.id for act in after.acts):
        return [f"{what} is approved and has begun"]
    lines = [f"{what} is approved, for this once and for 10 minutes"]
    if asked.also:
        lines.append(f"it still waits: {'; '.join(asked.also)}")
    return lines


def _tell_cancel(args: dict[str, Any], before: Standing, after: Standing) -> Sequence[str]:
    key = args["id"]
    act = next((each for each in before.acts if each.case == key), None)
    if act is None:
        return [f"nothing more is done for {key} until its alerts were over for a minute"]
    return [_stopped(act, after)]


def _tell_quarantine(args: dict[str, Any], _: Standing, __: Standing) -> Sequence[str]:
    card = args["card"]
    return [f"{card} is quarantined: no act moves work to it until `release {card}`"]


def _tell_release(args: dict[str, Any], before: Standing, _: Standing) -> Sequence[str]:
    card = args["card"]
    return [f"{card} is released (it was quarantined: {before.quarantined.get(card, '?')})"]


_TELLERS: Mapping[str, Callable[[dict[str, Any], Standing, Standing], Sequence[str]]] = {
    "pause": _tell_pause,
    "resume": _tell_resume,
    "approve": _tell_approve,
    "cancel": _tell_cancel,
    "quarantine": _tell_quarantine,
    "release": _tell_release,
}
