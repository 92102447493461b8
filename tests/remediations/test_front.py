"""The front's include: whole or taken back, also when the daemon dies amid a switch."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import fake_system
from vllm_watchdog.remediations.adapters.front import Front
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.config import Service, parse
from vllm_watchdog.watchdog.errors import CommandTimeout, Permanent, SourceError
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode
from vllm_watchdog.watchdog.system import Finished, System

INCLUDE = "/etc/nginx/vllm-watchdog/deepseek.conf"
PRIMARY = "server 127.0.0.1:8000;\n"
GOOD = {"nginx -t": "", "nginx -s reload": ""}
BAD = Finished(
    1,
    b"",
    b"nginx: [warn] something\n"
    b'nginx: [emerg] unknown directive "rubbish" in /etc/nginx/conf.d/a.conf:1\n'
    b"nginx: configuration file /etc/nginx/nginx.conf test failed\n",
)


def service(front: str = "", standby: str = "http://127.0.0.1:8001") -> Service:
    text = f"""
services:
  deepseek:
    url: http://127.0.0.1:8000
    standby: {{url: "{standby}"}}
    front: {{nginx: {INCLUDE}, url: "http://127.0.0.1:80"{front}}}
"""
    return parse(text).services["deepseek"]


def front_of(settings: Service | None = None, serving: Any = "primary") -> Front:
    alert = Alert("serving/EngineDead", (("alertname", "EngineDead"),), "firing", 0.0, 1.0)
    case = ActCase(
        request=Request("restart", alert, service="deepseek", id="r1"),
        name="deepseek",
        settings=settings or service(),
        mode=ServiceMode(serving=serving),
        cards=(),
        sick=(),
        spares=(),
        began=0.0,
        state=Path("/state"),
    )
    found = Front.of(case)
    assert found is not None
    return found


def node(tmp_path: Path, commands: dict[str, Any], text: str | None = PRIMARY) -> System:
    system = fake_system(commands, root=tmp_path)
    system.files.make_folder("/etc/nginx/vllm-watchdog")
    if text is not None:
        system.files.write(INCLUDE, text.encode())
    return system


def include(system: System) -> str:
    return system.files.text(INCLUDE)


def calls(system: System) -> list[list[str]]:
    found: list[list[str]] = system.runner.calls  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (PRIMARY, "primary"),
        ("server 127.0.0.1:8001;\n", "standby"),
        ("server 127.0.0.1:8000 down;\n", "drained"),
        ("# server 127.0.0.1:8000;\nserver 127.0.0.1:8001 max_fails=0; # standby\n", "standby"),
        ("server 127.0.0.1:8000;\nserver 127.0.0.1:8001;\n", "unknown"),
        ("server 10.9.9.9:8000;\n", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_include_says_where_the_front_points(
    tmp_path: Path, text: str | None, where: str
) -> None:
    assert front_of().state(node(tmp_path, {}, text)) == where


def test_a_switch_is_tested_before_it_is_loaded(tmp_path: Path) -> None:
    system = node(tmp_path, GOOD)
    front_of().point(system, "standby")

    assert calls(system) == [["nginx", "-t"], ["nginx", "-s", "reload"]]
    assert "server 127.0.0.1:8001;" in include(system)
    assert front_of().state(system) == "standby"


def test_a_configured_command_tests_and_reloads(tmp_path: Path) -> None:
    command = ', command: ["/opt/nginx", "-c", "/x.conf"]'
    system = node(tmp_path, {"/opt/nginx -c /x.conf -t": "", "/opt/nginx -c /x.conf -s reload": ""})
    front_of(service(command)).point(system, "standby")

    assert len(calls(system)) == 2


def test_a_configured_reload_stands_for_both(tmp_path: Path) -> None:
    system = node(tmp_path, {"systemctl reload nginx": ""})
    front_of(service(', reload: ["systemctl", "reload", "nginx"]')).point(system, "standby")

    assert calls(system) == [["systemctl", "reload", "nginx"]]


def test_what_nginx_does_not_take_is_taken_back_and_told_in_its_own_words(tmp_path: Path) -> None:
    system = node(tmp_path, {"nginx -t": BAD})

    with pytest.raises(SourceError) as told:
        front_of().point(system, "standby")

    assert str(told.value).startswith('nginx: [emerg] unknown directive "rubbish"')
    assert include(system) == PRIMARY
    assert calls(system) == [["nginx", "-t"]]


@pytest.mark.parametrize("failure", [BAD, CommandTimeout("nginx did not end within 10 s")])
def test_a_reload_that_fails_is_taken_back_and_nginx_told_so(tmp_path: Path, failure: Any) -> None:
    system = node(tmp_path, {"nginx -t": "", "nginx -s reload": [failure, ""]})

    with pytest.raises((SourceError, CommandTimeout)):
        front_of().point(system, "standby")

    assert include(system) == PRIMARY
    assert calls(system) == [["nginx", "-t"], *[["nginx", "-s", "reload"]] * 2]
    assert front_of().state(system) == "primary"


def test_an_include_that_was_not_there_is_gone_again_after_a_failure(tmp_path: Path) -> None:
    system = node(tmp_path, {"nginx -t": BAD}, None)

    with pytest.raises(SourceError):
        front_of().point(system, "standby")

    assert not system.files.exists(INCLUDE)


SITES = "/etc/nginx/sites/deepseek.conf"


def linked(system: System, target: str = "../sites/deepseek.conf") -> None:
    """The include lies elsewhere; where nginx looks for it there is a link."""
    system.files.make_folder("/etc/nginx/sites")
    system.files.path(INCLUDE).symlink_to(target)


@pytest.mark.parametrize(("answer", "text"), [("", "127.0.0.1:8001"), (BAD, "127.0.0.1:8000")])
def test_an_include_that_is_a_link_stays_one_and_the_file_that_it_means_is_written(
    tmp_path: Path, answer: Any, text: str
) -> None:
    system = node(tmp_path, {**GOOD, "nginx -t": answer}, None)
    linked(system)
    system.files.write(SITES, PRIMARY.encode())

    with contextlib.nullcontext() if answer == "" else pytest.raises(SourceError):
        front_of().point(system, "standby")

    assert system.files.link(INCLUDE) == "../sites/deepseek.conf"
    assert f"server {text};" in system.files.text(SITES)
    assert system.files.names("/etc/nginx/sites") == ["deepseek.conf"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../sites/deepseek.conf", r"a symbolic link to \S+/sites/deepseek.conf, which is not"),
        ("deepseek.conf", "a circle of symbolic links"),
    ],
)
def test_a_link_that_leads_nowhere_is_refused_before_anything_is_written(
    tmp_path: Path, target: str, said: str
) -> None:
    system = node(tmp_path, {}, None)
    linked(system, target)

    with pytest.raises(SourceError, match=f"^{INCLUDE} is {said}"):
        front_of().point(system, "standby")

    assert calls(system) == []
    assert system.files.link(INCLUDE) == target
    assert not system.files.exists("/state/fronts/deepseek.before")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_that_another_user_made_does_not_choose_what_is_overwritten(tmp_path: Path) -> None:
    system = node(tmp_path, {}, None)
    linked(system)
    system.files.write(SITES, b"root's own\n")
    os.chown(system.files.path(INCLUDE), 65534, 65534, follow_symlinks=False)

    with pytest.raises(SourceError, match="is another user's symbolic link"):
        front_of().point(system, "standby")

    assert system.files.text(SITES) == "root's own\n"


class Killed(BaseException):
    """The end of the process amid a call."""


@pytest.mark.parametrize("at", ["nginx -t", "nginx -s reload"])
def test_a_switch_cut_short_by_a_kill_is_not_done_and_is_done_again(
    tmp_path: Path, at: str
) -> None:
    system = node(tmp_path, {**GOOD, at: [Killed(), ""]})
    with pytest.raises(Killed):
        front_of().point(system, "standby")
    step = front_of().step("standby")

    assert (front_of().settled(system), step.done(system)) == (False, "no")
    assert step.do is not None
    step.do(system)
    assert step.done(system) == "yes"


def test_after_a_kill_amid_a_switch_a_failure_brings_back_what_nginx_has(tmp_path: Path) -> None:
    system = node(tmp_path, {**GOOD, "nginx -t": [Killed(), BAD]})
    with pytest.raises(Killed):
        front_of().point(system, "standby")

    with pytest.raises(SourceError):
        front_of().point(system, "standby")

    assert (include(system), front_of().state(system)) == (PRIMARY, "primary")


@pytest.mark.parametrize(
    ("serving", "target", "back"),
    [
        ("primary", "standby", "primary"),
        ("standby", "primary", "standby"),
        ("primary", "drained", "primary"),
        ("standby", "drained", "standby"),
    ],
)
def test_a_step_taken_back_points_where_users_were(
    tmp_path: Path, serving: str, target: Any, back: str
) -> None:
    system = node(tmp_path, GOOD)
    step = front_of(serving=serving).step(target)
    assert step.do is not None
    assert step.undo is not None
    step.do(system)
    assert step.done(system) == "yes"
    step.undo(system)

    assert front_of().state(system) == back


def test_a_switch_back_after_a_kill_amid_a_switch_is_made_although_the_include_says_so(
    tmp_path: Path,
) -> None:
    system = node(tmp_path, {**GOOD, "nginx -t": [Killed(), ""]})
    with pytest.raises(Killed):
        front_of().point(system, "standby")
    front_of().point(system, "primary")

    assert (front_of().state(system), front_of().settled(system)) == ("primary", True)
    assert calls(system)[-1] == ["nginx", "-s", "reload"]


def test_without_a_standby_there_is_nothing_to_point_at(tmp_path: Path) -> None:
    settings = service().model_copy(update={"standby": None})
    system = node(tmp_path, GOOD)

    with pytest.raises(Permanent):
        front_of(settings).point(system, "standby")

    assert (include(system), calls(system)) == (PRIMARY, [])


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1;evil:80", "http://a{b}:80", "http://u:p@h:80", "http://h:80/v1/x"]
)
def test_an_address_that_would_not_stay_one_word_is_never_written(tmp_path: Path, url: str) -> None:
    system = node(tmp_path, GOOD)

    with pytest.raises(Permanent):
        front_of(service(standby=url)).point(system, "standby")

    assert include(system) == PRIMARY


def test_an_ipv6_address_is_written_in_brackets(tmp_path: Path) -> None:
    system = node(tmp_path, GOOD)
    front_of(service(standby="http://[::1]:8001")).point(system, "standby")

    assert "server [::1]:8001;" in include(system)


def test_a_flag_can_be_read_by_the_workers_of_nginx(tmp_path: Path) -> None:
    system = node(tmp_path, {})
    before = os.umask(0o077)  # as the unit runs the daemon
    try:
        front_of().cache_only.up(system, 300.0, "r1")
    finally:
        os.umask(before)
    path = system.files.path("/etc/nginx/vllm-watchdog/deepseek.cache-only")

    assert path.stat().st_mode & 0o777 == 0o644
    assert path.read_text() == "seconds=300\npercent=100\nowner=r1\n"


def test_a_flag_never_asks_for_more_than_ten_minutes(tmp_path: Path) -> None:
    system = node(tmp_path, {})
    front_of().cache_only.up(system, 5000.0)

    assert "seconds=600\n" in system.files.text("/etc/nginx/vllm-watchdog/deepseek.cache-only")


def test_flags_lie_where_the_configuration_says(tmp_path: Path) -> None:
    system = node(tmp_path, {})
    system.files.make_folder("/run/flags")
    front_of(service(", flags: /run/flags")).cache_only.up(system, 600.0)

    assert system.files.names("/run/flags") == ["deepseek.cache-only"]
