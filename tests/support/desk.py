"""A desk that notes the commands it is given, and changes its standing as the daemon would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_watchdog.watchdog.api.standing import Act, Standing, Waiting
from vllm_watchdog.watchdog.errors import WatchdogError
from vllm_watchdog.watchdog.model import Command

NOW = 1_700_000_000.0
RESTART = Act("chat-1-1", "chat", "chat", "restart", NOW, NOW + 600)
FAILOVER = Waiting(
    "chat", "chat", "card_failover", "card_lost", "CardLost", NOW, ("cooling down for another 9 s",)
)
OTHER = Waiting("deepseek", "deepseek", "restart", "engine_dead", "EngineDead", NOW)


class FakeDesk:
    """``hears`` False: no tick comes; ``fault``: commands cannot be passed on."""

    def __init__(self, **standing: object) -> None:
        told = {
            "mode": "act",
            "instance": "node-1:9710",
            "services": ("chat", "deepseek"),
            "cards": {"0000:c1:00": "0000:c1:00", "npu 7": "0000:c1:00", "npu3": "npu3"},
            **standing,
        }
        self.now = Standing(**told)  # type: ignore[arg-type]
        self.commands: list[Command] = []
        self.hears, self.fault = True, ""

    def standing(self) -> Standing:
        return self.now

    def carry(self, commands: Sequence[Command]) -> bool:
        if self.fault:
            raise WatchdogError(self.fault)
        self.commands += commands
        for command in commands if self.hears else ():
            self._take(command)
        return self.hears

    def _take(self, command: Command) -> None:
        args, now = command.args, self.now
        if command.verb == "pause":
            until = NOW + args["for"] if "for" in args else None
            self.now = replace(now, paused={**now.paused, args["service"]: until})
        elif command.verb == "resume":
            service = args.get("service")
            left = {k: v for k, v in now.paused.items() if service and k != service}
            self.now = replace(now, paused=left)
        elif command.verb == "close_breaker":
            self.now = replace(now, breaker="")
        elif command.verb == "quarantine":
            held = {**now.quarantined, args["card"]: args.get("reason", "")}
            self.now = replace(now, quarantined=held)
        elif command.verb == "release":
            held = {k: v for k, v in now.quarantined.items() if k != args["card"]}
            self.now = replace(now, quarantined=held)

    @property
    def verbs(self) -> list[tuple[str, dict[str, object]]]:
        return [(command.verb, dict(command.args)) for command in self.commands]
