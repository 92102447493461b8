"""The command door: a request in, a command to the engine, an answer of what it changed.

It starts nothing itself: a command becomes an input of the next tick. Nothing in a request ever
becomes part of what is run on the node.
"""

from __future__ import annotations

from ..documents import json_of
from ..errors import WatchdogError
from ..model import Command, Json
from .asking import Refused, commands_of
from .doors import Caller, Proof, Rate, Token, error, too_many, unproved
from .parameters import dumps
from .routes import JSON, Answer
from .standing import Desk, standing_doc
from .told import told

PATH = "/api/v1/commands"
MAX_BODY = 16 * 1024  # bytes of a command


class Commands:
    """The door at ``/api/v1/commands``: GET tells how the node stands, POST gives a command."""

    def __init__(self, desk: Desk, token: Token, rate: Rate) -> None:
        self._desk, self._token, self._rate = desk, token, rate

    def refuse(self, caller: Caller) -> Answer | None:
        """See Door.refuse: the Unix socket's users are let in, others need the token."""
        if (caller.length or 0) > MAX_BODY:
            return error(413, f"a command is at most {MAX_BODY} bytes")
        if caller.peer:
            return None
        proof: Proof = self._token.proof(caller.authorization)
        if proof == "off":
            text = "commands come by the Unix socket only; control.token_file allows them here"
            return error(403, text)
        if proof != "ok":
            wait = self._rate.take()
            return too_many(wait) if wait else unproved(proof)
        return None

    def answer(self, caller: Caller, body: bytes) -> Answer:
        """See Door.answer."""
        if caller.method != "POST":
            return Answer(200, dumps(standing_doc(self._desk.standing())), JSON)
        if caller.kind != "application/json":
            return error(400, "Content-Type: send application/json")
        try:
            verb, args = _parsed(body)
            return Answer(200, dumps(self._carry(verb, args, _who(caller))), JSON)
        except Refused as refused:
            return error(refused.status, str(refused))
        except WatchdogError as fault:
            return error(503, str(fault))

    def _carry(self, verb: str, args: Json, who: str) -> Json:
        before = self._desk.standing()
        commands = [Command(name, given, who) for name, given in commands_of(verb, args, before)]
        heard = self._desk.carry(commands)
        after = self._desk.standing()
        done = told(verb, dict(commands[0].args), before, after) if heard else []
        if not heard:
            done = ["it waits for the daemon's next tick, which is late: see its log"]
        return {"verb": verb, "who": who, "heard": heard, "done": done, **standing_doc(after)}


def _parsed(body: bytes) -> tuple[str, Json]:
    try:
        doc = json_of(body)
    except ValueError as fault:
        raise Refused(f"the body is no JSON: {str(fault)[:200]}") from fault
    if not isinstance(doc, dict) or not isinstance(doc.get("verb"), str):
        raise Refused('send {"verb": "pause", "args": {"reason": "…"}}')
    args = doc.get("args", {})
    if not isinstance(args, dict) or set(doc) - {"verb", "args"}:
        raise Refused("args: is an object, and nothing stands beside verb and args")
    return doc["verb"], args


def _who(caller: Caller) -> str:
    return caller.peer or f"the token's holder at {caller.address}"
