"""Whatever a log line, a label or a body says, commands stay the same: nothing of it is in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.healing.node import INCLUDE, OWN, SPARE, STANDBY, Node, case_of, service, walk
from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.remediations.adapters import environment
from vllm_watchdog.remediations.adapters.instances import serving
from vllm_watchdog.remediations.adapters.managers import Settings, manager_of
from vllm_watchdog.remediations.adapters.systemd import Systemd
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.config import Manager
from vllm_watchdog.watchdog.errors import Permanent, SourceError
from vllm_watchdog.watchdog.model import Alert, labelset
from vllm_watchdog.watchdog.system import Finished

HOSTILE = st.one_of(
    st.sampled_from(
        [
            "; rm -rf /", "$(reboot)", "`id`", "--no-block", "-H evil", "| sh", "a\nb", "../../etc",
            "vllm@other.service", "%n", "\x00", "'\"", "x" * 5000, "EnvironmentFile=/etc/shadow",
        ]
    ),
    st.text(min_size=1, max_size=40),
)  # fmt: skip
KNOWN = {"systemctl", "nginx", "nvidia-smi"}
ACTS = ("restart", "card_failover", "quantize", "defragment", "drain")


class Listening(Node):
    """A node that keeps every command as it came, and what a walk wrote."""

    def run(self, argv: Any, **more: Any) -> Finished:
        self.argvs.append(tuple(argv))
        return super().run(argv, **more)

    def __post_init__(self) -> None:
        self.argvs: list[tuple[str, ...]] = []
        super().__post_init__()


def commands(root: Path, act: str, text: str, message: str) -> set[tuple[str, ...]]:
    """Every command of an act whose alert, labels and answers say ``text``; pids left out."""
    node = Listening(root)
    node.clock.advance(60)
    node.write(INCLUDE, "server 127.0.0.1:8000;\n")
    for name in ("fp16", "int8"):
        node.write(f"/etc/w/{name}.env", f"MODEL=/models/{name}\n")
    node.answer = message.replace("\\", "").replace('"', "")
    node.unit.result = text.replace("\n", " ")
    node.write(f"/proc/{node.unit.main}/cmdline", f"vllm\0serve\0{text}")
    more = {"standby": True} if act == "card_failover" else {}
    own = service(
        standby={"url": STANDBY, "cards": [SPARE]},
        profiles={name: f"/etc/w/{name}.env" for name in ("fp16", "int8")},
        start_profile="fp16",
    )
    case = case_of(node, own, "device_memory" if act == "quantize" else "output_corrupt", **more)
    walk(node, REMEDIATIONS[act].plan(node.system, _told(case, text)))
    return {argv for argv in node.argvs if argv[0] in KNOWN}


def _told(case: ActCase, text: str) -> ActCase:
    labels = labelset({"alertname": text, "service": "chat", "card": text, "x": text})
    alert = Alert(text, labels, "firing", 0.0, 1.0, labelset({"summary": text}))
    request = replace(case.request, alert=alert)
    return replace(case, request=request, policy={"name": text}, sick=(OWN,))


@pytest.mark.parametrize("act", ACTS)
@given(text=HOSTILE, message=st.text(st.characters(exclude_categories=["C"]), max_size=20))
@bounds(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_commands_do_not_depend_on_what_alerts_and_answers_say(
    tmp_path_factory: pytest.TempPathFactory, act: str, text: str, message: str
) -> None:
    plain = commands(tmp_path_factory.mktemp("plain"), act, "quiet", "4")
    hostile = commands(tmp_path_factory.mktemp("hostile"), act, text, message)

    assert plain
    assert hostile == plain


@pytest.mark.parametrize(
    "name", ["-H evil", "a b", "a;b", "$(x)", "", "a/b", "--help", "a\n", "*", "é.service"]
)
def test_a_unit_name_that_is_none_is_refused_by_configuration_and_adapter(
    tmp_path: Path, name: str
) -> None:
    node = Node(tmp_path)

    with pytest.raises(ValidationError):
        Manager(systemd=name)
    with pytest.raises(Permanent):
        Systemd(name, "chat", Path("/state")).start(node.system)
    assert node.log == []


@pytest.mark.parametrize("name", ["-x", "a b", "a/b", "..", "", "a?b"])
def test_a_container_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Manager(docker=name)


@given(values=st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3))
@bounds(max_examples=50, suppress_health_check=list(HealthCheck))
def test_values_of_a_profile_stay_values(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    node = Node(tmp_path_factory.mktemp("node"))
    try:
        environment.configure(node.system, Path("/state"), "chat", Settings(values, "act-1"))
    except SourceError:
        return

    assert environment.read(node.system, Path("/state"), "chat") == values


def test_the_manager_of_an_instance_is_the_configured_one(tmp_path: Path) -> None:
    case = case_of(Node(tmp_path), service())

    assert manager_of(serving(case), case.state) == Systemd("vllm@chat.service", "chat", case.state)
