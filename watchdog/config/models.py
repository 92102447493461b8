"""What a configuration may hold: one model per room, each field with default, unit and reason.

Values only. Whether a path exists or an alert name is known is for the rooms that use it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from .durations import Address, Period, PositiveSeconds, Rate, Seconds

Mode = Literal["observe", "confirm", "act"]


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(c.isspace() or not c.isprintable() for c in value):
        raise ValueError(f"{value!r} is no address: write http://127.0.0.1:8000")
    return value


def _label(value: str) -> str:
    if value.startswith("__"):
        raise ValueError("label names that begin with __ are Prometheus' own")
    return value


ADDRESS = r"^https?://[^\s/]+"
Url = Annotated[
    str,
    StringConstraints(pattern=ADDRESS, strip_whitespace=True),
    AfterValidator(_address),
]
LabelName = Annotated[
    str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$"), AfterValidator(_label)
]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")]
UnitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_:.@\\-]{0,250}$")]
ContainerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}$")]
ServiceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Act = Literal[
    "page",
    "restart",
    "card_failover",
    "quantize",
    "cache_only",
    "reset_card",
    "defragment",
    "shed_load",
    "drain",
    "lower_frequency",
]
OWN_UNIT = "vllm-watchdog"
CARD = re.compile(
    r"^(?:[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(?:/\d+)?|npu\d+(?:/\d+)?|npu \d+(?:/\d+)?|gpu \d+"
    r"|MIG-[0-9A-Za-z/-]+)$"
)


def default_state() -> Path:
    """Where state is kept: /var/lib for root, else the user's state folder."""
    if os.geteuid() == 0:
        return Path("/var/lib/vllm-watchdog")
    try:
        home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    except RuntimeError:  # a user without a home; the error at the start says what to do
        return Path("/var/lib/vllm-watchdog")
    return Path(home) / "vllm-watchdog"


def _card_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for card in value:
        if not CARD.match(card):
            raise ValueError(
                f"{card!r} is no card: write a PCI address as 0000:c1:00, or npu 7, npu 3/1, gpu 0"
            )
    if len(set(value)) != len(value):
        raise ValueError("holds the same card twice")
    return value


class Room(BaseModel):
    """Base: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=4096)


class CollectorSettings(Room):
    """How one kind of collector runs."""

    enabled: bool = Field(True, description="false switches the collector off on this node")
    interval: Period | None = Field(None, description="seconds between runs; default 5s")
    timeout: Period | None = Field(
        None, description="after this a run counts as stalled; default 10s"
    )
    expected: tuple[str, ...] = Field(
        (), description="cards that must be there (npu_smi, nvidia_smi); else those seen before"
    )
    files: tuple[str, ...] = Field((), description="log files to follow (kernel_log, ascend_log)")
    source: Literal["nvidia-smi", "nvml"] = Field(
        "nvidia-smi",
        description="nvml: nvidia_smi asks NVIDIA's library in a child process (nvidia-ml-py)",
    )


class RuleSettings(Room):
    """Which Prometheus rule files the node evaluates itself."""

    files: tuple[str, ...] | None = Field(
        None, description="rule files or patterns; without the key the shipped rules"
    )
    groups: tuple[str, ...] = Field(("*",), description="patterns of the group names that run here")
    urgent: tuple[str, ...] = Field(
        ("hardware", "serving"), description="groups evaluated at once on an urgent event"
    )
    stale_after: PositiveSeconds = Field(
        300.0, description="how long inputs may be unknown before InputsUnknown fires"
    )


class Peer(Room):
    """Another node whose round trip is measured."""

    host: str = Field(min_length=1, description="name or address")
    port: int = Field(22, ge=1, le=65535, description="an open TCP port there")
    roce: str | None = Field(
        None, description="address of an NPU port there, asked with hccn_tool -ping"
    )

    @field_validator("roce")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        try:
            return None if value is None else str(ipaddress.ip_address(value))
        except ValueError as error:
            raise ValueError(f"{value!r} is no IP address") from error


class Schedule(Room):
    """A window of time that rules see as schedule_active{name}."""

    cron: str = Field(description="minute hour day month weekday, local time")
    lasts: PositiveSeconds = Field(description="how long it lasts from each start")

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        from apscheduler.triggers.cron import CronTrigger

        try:
            CronTrigger.from_crontab(value)
        except ValueError as error:
            raise ValueError(f"is no cron expression: {error}") from error
        return value


class Alertmanager(Room):
    """Where alerts go."""

    urls: tuple[Url, ...] = Field((), description="every instance; none = off")
    resend: Period = Field(60.0, description="how often a firing alert is sent again")


class Elasticsearch(Room):
    """Where journal events go."""

    hosts: tuple[Url, ...] = Field((), description="any of them is asked; none = off")
    api_key_file: Path | None = Field(None, description="file with an encoded API key")
    username: str | None = Field(None, description="for basic authentication")
    password_file: Path | None = Field(None, description="file with the password")
    ca_file: Path | None = Field(None, description="certificate authority of the servers")

    @model_validator(mode="after")
    def _one_way_in(self) -> Elasticsearch:
        if self.api_key_file and self.username:
            raise ValueError("give either api_key_file or username with password_file, not both")
        if bool(self.username) != bool(self.password_file):
            raise ValueError("username and password_file belong together")
        return self


class Outlets(Room):
    """Who is told. All off by default."""

    alertmanager: Alertmanager = Alertmanager()
    elasticsearch: Elasticsearch = Elasticsearch()


class Control(Room):
    """Commands over HTTP; without a token only over the Unix socket."""

    token_file: Path | None = Field(None, description="file with the bearer token")


class Tls(Room):
    """TLS of the listener."""

    cert_file: Path | None = Field(None, description="certificate chain")
    key_file: Path | None = Field(None, description="private key")
    client_ca_file: Path | None = Field(None, description="webhook clients must show one of these")

    @model_validator(mode="after")
    def _pair(self) -> Tls:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together")
        return self


class Manager(Room):
    """Who starts and stops a server: exactly one of the three."""

    systemd: UnitName | None = Field(None, description="unit name")
    docker: ContainerName | None = Field(None, description="container name")
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="argument list that starts it"
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Manager:
        if sum(x is not None for x in (self.systemd, self.docker, self.command)) != 1:
            raise ValueError("name exactly one of systemd, docker, command")
        if self.command is not None and not self.command[0].strip():
            raise ValueError("command begins with an empty word: the program's name comes first")
        if self.systemd is not None and self.systemd.removesuffix(".service") == OWN_UNIT:
            raise ValueError(f"{self.systemd} is the daemon's own unit: name the server's")
        return self


class Front(Room):
    """What stands before the servers."""

    nginx: Path = Field(description="include file that the daemon writes")
    url: Url = Field(description="where users come in")
    listen: str | None = Field(
        None,
        description="what setup nginx makes nginx listen on, such as 0.0.0.0:80; default url's",
    )
    command: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("nginx",), description="argument list to which -t and -s reload are appended"
    )
    reload: tuple[str, ...] = Field(
        (), description="argument list that tests and reloads nginx, run in place of both"
    )
    njs: bool = Field(
        True, description="false: nginx without njs; cache_only and shed_load are then declined"
    )
    flags: Path | None = Field(
        None, description="folder of the flags that nginx looks at; default the include file's"
    )
    cache: Path | None = Field(
        None, description="folder of the kept answers; default /var/cache/vllm-watchdog-NAME"
    )
    tenants: tuple[HeaderName, ...] = Field(
        ("Authorization", "X-Api-Key", "Cookie", "OpenAI-Organization", "OpenAI-Project"),
        description="request headers that tell tenants apart: they share no kept answer",
    )
    shed_percent: int = Field(
        25, ge=1, le=90, description="share of new requests that shed_load refuses"
    )


class Standby(Room):
    """A second, already running instance."""

    url: Url = Field(description="base address")
    manager: Manager | None = Field(None, description="who runs it")
    cards: tuple[str, ...] = Field((), description="its cards")

    _cards = field_validator("cards")(_card_names)


class Probe(Room):
    """A real request through the users' path."""

    kind: Literal["completion", "chat", "embedding", "none"] | None = Field(
        None, description="without it /v1/models and the OpenAPI page decide"
    )
    model: str | None = Field(None, description="default: the first served model")
    prompt: str = Field("2+2=", description="kept short: it runs every few seconds")
    max_tokens: int = Field(1, ge=1, le=64, description="tokens asked for")
    timeout: Period = Field(20.0, description="limit of one probe")
    interval: Period = Field(5.0, description="seconds between two probes")
    expect: str | None = Field(None, description="canary: pattern of the answer at temperature 0")

    @field_validator("expect")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(value or "", options)
        except re2.error as error:
            raise ValueError(f"is no RE2 regular expression: {str(error)[:100]}") from error
        return value


class Targets(Room):
    """What the service promises; become service_target{service,target}."""

    p95: PositiveSeconds | None = Field(None, description="seconds of a whole response")
    ttft: PositiveSeconds | None = Field(None, description="seconds to the first token")
    tokens_per_second: float | None = Field(None, gt=0, description="generated tokens a second")


class Service(Room):
    """One vLLM server and what may be done for it."""

    url: Url = Field(description="base address of the server, such as http://127.0.0.1:8000")
    mode: Mode | None = Field(None, description="stricter than the top mode, if given")
    api_key_file: Path | None = Field(None, description="file with the server's API key")
    cards: tuple[str, ...] = Field((), description='PCI addresses, or "npu 7", "gpu 0"')
    spares: tuple[str, ...] = Field((), description="cards that may take over")
    standby: Standby | None = None
    manager: Manager | None = None
    profiles: dict[str, Path] = Field({}, description="environment files by profile name")
    start_profile: str | None = Field(None, description="profile at the first start")
    overflow: tuple[str, ...] | None = Field(
        None,
        description="profiles that quantize tries, weakest change first; default int8, if there",
    )
    expandable_segments: bool = Field(
        False, description="what acts start gets PYTORCH_*_ALLOC_CONF=expandable_segments:True"
    )
    front: Front | None = None
    needs: tuple[str, ...] = Field((), description="peers without which it cannot serve")
    probe: Probe = Probe()
    targets: Targets = Targets()
    logs: tuple[str, ...] = Field((), description="log files, patterns allowed")

    _cards = field_validator("cards", "spares")(_card_names)

    @model_validator(mode="after")
    def _consistent(self) -> Service:
        if self.start_profile is not None and self.start_profile not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise ValueError(f"start_profile {self.start_profile!r} is not in profiles ({known})")
        for name in self.overflow or ():
            if name not in self.profiles:
                known = ", ".join(sorted(self.profiles)) or "none"
                raise ValueError(f"overflow names {name!r}, which is not in profiles ({known})")
        both = set(self.cards) & set(self.spares)
        if both:
            raise ValueError(f"{sorted(both)[0]} stands in both cards and spares")
        standby, front = self.standby, self.front
        if standby is not None and _base(standby.url) == _base(self.url):
            raise ValueError(f"standby.url is the service's own: {standby.url}")
        if standby is not None and self.manager is not None and standby.manager == self.manager:
            raise ValueError("standby.manager is the service's own: one act would end both")
        servers = (self.url, *((standby.url,) if standby else ()))
        if front is not None and _base(front.url) in map(_base, servers):
            raise ValueError(f"front.url is a server's own: {front.url}")
        return self


class Policy(Room):
    """Binds alerts to a ladder of acts; or takes over a named policy of the shipped ones."""

    name: str | None = Field(None, description="for use: and for people")
    use: str | None = Field(None, description="a named policy of rules/policies.yaml")
    when: tuple[str, ...] | None = Field(None, description="alert names or matchers")
    services: tuple[str, ...] | None = Field(None, description="default all")
    do: tuple[Act, ...] | None = Field(None, description="the ladder, smallest act first")
    mode: Mode | None = Field(None, description="stricter than the service's, if given")
    within: PositiveSeconds | None = Field(None, description="then a person is paged at once")
    at_most: PositiveSeconds | None = Field(None, description="longest duration of the act")

    @model_validator(mode="after")
    def _complete(self) -> Policy:
        if self.use is None and not (self.when and self.do):
            raise ValueError("needs when and do (or use)")
        if self.when is not None and not all(item.strip() for item in self.when):
            raise ValueError("when holds an empty name")
        return self


class Guard(Room):
    """Limits on acting."""

    cooldown: Seconds = Field(120.0, description="after an act of one (service, cause); grows")
    attempts: int = Field(3, ge=1, description="ladders per (service, cause) ...")
    per: PositiveSeconds = Field(3600.0, description="... within this time")
    node: Rate = Field((4, 3600.0), description="acts of this node")
    fleet: str | None = Field(None, description="address of the fleet's coordinator")


class Config(Room):
    """The whole configuration."""

    mode: Mode = Field(
        "observe", description="what may be done; a service or a policy can be stricter"
    )
    listen: Address = Field(("127.0.0.1", 9710), description="0.0.0.0:9710 for a central scrape")
    state: Path = Field(default_factory=default_state, description="state folder")
    interval: Period = Field(5.0, description="seconds between two ticks")
    labels: dict[LabelName, str] = Field(
        {}, description="job and instance as the central scrape gives them"
    )
    external_labels: dict[LabelName, str] = Field({}, description="added on sending only")
    collectors: dict[str, CollectorSettings] = Field({}, description="by collector name")
    rules: RuleSettings = RuleSettings()
    peers: dict[ServiceName, Peer] = Field({}, description="by name")
    schedules: dict[ServiceName, Schedule] = Field({}, description="by name")
    outlets: Outlets = Outlets()
    compat: tuple[Literal["npu-exporter", "dcgm-exporter"], ...] = Field(
        (), description="official exporters whose metric names are given, too"
    )
    control: Control = Control()
    tls: Tls = Tls()
    services: dict[ServiceName, Service] = Field({}, description="by name; none = discovered")
    policies: tuple[Policy, ...] | None = Field(None, description="none = the shipped ones")
    guard: Guard = Guard()

    @model_validator(mode="after")
    def _peers_known(self) -> Config:
        for name, service in self.services.items():
            for need in service.needs:
                if need not in self.peers:
                    known = ", ".join(sorted(self.peers)) or "none"
                    raise ValueError(
                        f"service {name} needs {need!r}, no such peer (peers: {known})"
                    )
        return self

    @model_validator(mode="after")
    def _apart(self) -> Config:
        """What an act on one service changes is no other one's."""
        owners: dict[tuple[str, object], str] = {}
        for name, service in self.services.items():
            for what, thing in _own(name, service):
                owner = owners.setdefault((what, thing), name)
                if owner != name:
                    raise ValueError(f"services {owner} and {name} have one {what}")
        return self


def _own(name: str, service: Service) -> Iterator[tuple[str, object]]:
    """All that belongs to one service alone: what it is, for people, and its name."""
    yield "name of files in the state folder", name
    if service.standby is not None:
        yield "name of files in the state folder", f"{name}-standby"
    for instance in (service, service.standby):
        if instance is not None and instance.manager is not None:
            manager = instance.manager
            yield "manager", (manager.systemd, manager.docker, manager.command)
    if service.front is not None:
        yield "front.nginx", service.front.nginx


def _base(url: str) -> str:
    return url.rstrip("/")
