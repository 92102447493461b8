"""Commands that change what the daemon may do: pause, resume, approve, cancel, quarantine, release.

They go over the control socket, where the kernel says who asks. What they mean is the daemon's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api.control import PATH
from ..api.unix import NAME, RUN
from ..config.models import default_state
from ..documents import json_of
from ..errors import ConfigError, HttpError, Place, Problem, WatchdogError
from ..system import RealClock, RealHttp
from ..web import Response, unix_url
from .output import AsJson, print_json, print_table, visible

TIMEOUT = 30.0  # seconds: a tick must have heard the command
PATIENCE = (
    15.0  # seconds for which a daemon without a free place is asked again: it has one after 10
)
AGAIN = 0.2  # seconds between two tries

Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        envvar="VLLM_WATCHDOG_SOCKET",
        help=f"The daemon's control socket; default {RUN / NAME}, else in the state folder.",
        show_default=False,
    ),
]
ForService = Annotated[
    str | None, typer.Option("--service", help="Only this service; default all.")
]


def pause(
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever finds it paused.")],
    service: ForService = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="How long, such as 2h; default until `resume`.")
    ] = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Stop healing, of one service or all, while people work on it.

    Watching and alerts go on. An act under way is stopped after its present step; what it did for
    a time only (a drained front) is taken back. A pause survives restarts of the daemon and is
    told daily.
    Example: `vllm-watchdog pause --service deepseek --for 2h --reason "driver update"`.
    """
    _give("pause", {"service": service, "for": duration, "reason": reason}, socket, as_json)


def resume(service: ForService = None, socket: Socket = None, as_json: AsJson = False) -> None:
    """Let healing go on after a pause.

    Without --service every pause ends, the breaker is closed, and what the centre's webhook held
    back goes on. A hold file stays: remove it yourself.
    """
    _give("resume", {"service": service}, socket, as_json)


def approve(
    which: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="What waits, as listed. Nothing: list what waits."),
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", help="What waits for this service.")
    ] = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Say yes to an act that waits for it (mode confirm), or list what waits.

    A yes is for one act and holds for 10 minutes; everything else that guards an act still counts.
    """
    if which is None and service is None:
        _list(_ask("GET", socket), as_json)
        return
    _give("approve", {"id": which, "service": service}, socket, as_json)


def cancel(
    which: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The act or case, as `approve` and `status` name it."),
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", help="What is under way or due for this service.")
    ] = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Stop what is under way or due: a running act after its present step, a ladder for good.

    What it did for a time only (a drained front) is taken back, the rest stays. Without ID and
    --service, the only one there is. Healing starts anew with the next fault after a minute without
    alerts; `pause` keeps it off longer.
    """
    _give("cancel", {"id": which, "service": service}, socket, as_json)


def quarantine(
    card: Annotated[
        str, typer.Argument(help='The card: 0000:c1:00, "npu 7", "gpu 0", as any tool names it.')
    ],
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for others.")] = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Take a card out of use: no act moves work to it, until `release`.

    What runs on it now runs on. It survives restarts of the daemon and of the node.
    """
    _give("quarantine", {"card": card, "reason": reason}, socket, as_json)


def release(
    card: Annotated[str, typer.Argument(help="The card, as `status` or any tool names it.")],
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Let a quarantined card be used again: by spares, standbys and restarts.

    A card that failed is quarantined by the daemon itself; release it once it was replaced or
    passed a check.
    """
    _give("release", {"card": card}, socket, as_json)


def _give(verb: str, args: Mapping[str, Any], socket: Path | None, as_json: bool) -> None:
    given = {name: value for name, value in args.items() if value is not None}
    doc = _ask("POST", socket, {"verb": verb, "args": given})
    if as_json:
        print_json(doc)
        return
    for line in doc["done"]:
        print(visible(line))


def _called(waiting: Mapping[str, Any]) -> str:
    return f"{waiting['act']}, back" if waiting.get("back") else str(waiting["act"])


def _list(doc: Mapping[str, Any], as_json: bool) -> None:
    """What waits for approval, and what holds acts back."""
    if as_json:
        print_json(doc)
        return
    if doc["waiting"]:
        rows = [
            (w["id"], _called(w), w["cause"], w["alert"], w["since"], "; ".join(w["also"]) or None)
            for w in doc["waiting"]
        ]
        heads = ("id", "act", "cause", "alert", "since", "held up by")
        print_table("", heads, rows, whole=("id", "act"))
        first = shlex.quote(visible(doc["waiting"][0]["id"]))
        print(f"approve it with `vllm-watchdog approve {first}`")
    else:
        print("no act waits for approval")
    for line in _circumstances(doc):
        print(visible(line))


def _circumstances(doc: Mapping[str, Any]) -> Iterator[str]:
    for act in doc["acts"]:
        what = f"{act['act']} of {act['service'] or 'the node'}"
        yield f"under way: {what} since {act['since']}, until {act['deadline']} at the latest"
    for each in doc["paused"]:
        whom = each["service"] or "every service"
        yield f"paused: healing of {whom}" + (f" until {each['until']}" if each["until"] else "")
    for line in doc["held_back"]:
        yield f"held back: {line}"
    if doc["hold_file"]:
        yield "the hold file is there: nothing is done"
    if doc["breaker"]:
        yield f"the breaker is open: {doc['breaker']}; `resume` closes it"
    if doc["observing"]:
        yield f"the node only observes: {doc['observing']}; `resume` ends that"


def _places(socket: Path | None) -> list[Path]:
    return [socket] if socket is not None else [RUN / NAME, default_state() / NAME]


def _ask(method: str, socket: Path | None, doc: Mapping[str, Any] | None = None) -> Any:
    """The daemon's answer. Raises ConfigError, one line, where there is none or it refuses."""
    body = None if doc is None else json.dumps(doc).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    places = _places(socket)
    why = ""
    for path in places:
        try:
            url = unix_url(path.absolute(), PATH)
            answer = _answer(method, url, headers, body)
        except HttpError as error:
            why = why or _why(error)
            continue
        try:
            found = json_of(answer.body)
        except ValueError:
            found = None
        if _busy(answer):
            raise WatchdogError(f"{path}: all places of the daemon's socket are taken: try again")
        if not isinstance(found, dict):
            raise ConfigError(Problem(Place(str(path)), "is no vllm-watchdog's control socket"))
        if answer.status != 200:
            raise WatchdogError(visible(str(found.get("error") or f"HTTP {answer.status}")))
        return found
    hint = "start it with `vllm-watchdog run`, or name its socket with --socket"
    raise ConfigError(Problem(Place(str(places[0])), why, hint))


def _answer(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
    """The daemon's answer; while others take all its places, ask again for a while."""
    clock, http = RealClock(), RealHttp()
    end = clock.mono() + PATIENCE
    while True:
        try:
            answer = http.request(method, url, timeout=TIMEOUT, headers=headers, body=body)
        except HttpError as error:
            if clock.mono() >= end or not any(word in str(error) for word in _TAKEN):
                raise
        else:
            if clock.mono() >= end or not _busy(answer):
                return answer
        clock.sleep(AGAIN)


_TAKEN = ("temporarily unavailable", "reset by peer", "Broken pipe")


def _busy(answer: Response) -> bool:
    return answer.status == 503 and not answer.body


def _why(error: HttpError) -> str:
    """Why nobody answers, in words."""
    if any(word in str(error) for word in _TAKEN):
        return "all places of the daemon's socket are taken: try again"
    if "Permission denied" in str(error):
        return "you may not use it: be root, or of the group that owns it"
    if error.reason == "timeout":
        return "the daemon does not answer in time"
    return "no daemon answers there"
