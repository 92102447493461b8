"""`setup nginx` writes a front that a real nginx takes, once or again, or changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers
from tests.support.nginx import require_njs
from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.config import Service, parse
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.setup import nginx as texts


def configured(folder: Path, front: str = "", standby: str = "", name: str = "deepseek") -> Path:
    """A configuration whose nginx lives in ``folder``."""
    program = peers.find("nginx") or "nginx"
    (folder / "main.conf").write_text(
        f"pid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{ access_log off; include {folder}/conf.d/*.conf; }}\n"
    )
    path = folder / "watchdog.yaml"
    path.write_text(
        f"""
services:
  {name}:
    url: http://127.0.0.1:8000
    {standby}
    front:
      nginx: {folder}/front/{name}.conf
      url: http://127.0.0.1:18080
      command: ["{program}", "-c", "{folder}/main.conf", "-p", "{folder}"]
      cache: {folder}/cache
      {front}
"""
    )
    return path


def with_njs(folder: Path) -> None:
    main = folder / "main.conf"
    main.write_text(f"load_module {require_njs()};\n" + main.read_text())


def setup(folder: Path, *more: str) -> int:
    server = folder / "conf.d" / "deepseek.conf"
    return run(
        [
            "setup",
            "nginx",
            "--config",
            str(folder / "watchdog.yaml"),
            "--server",
            str(server),
            *more,
        ]
    )


def states(text: str) -> list[str]:
    return [each["state"] for each in json.loads(text)]


@pytest.mark.peer
def test_it_writes_what_nginx_takes_and_the_second_time_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.require("nginx")
    configured(tmp_path)
    with_njs(tmp_path)

    assert setup(tmp_path, "--json") == 0
    first = capsys.readouterr()
    assert states(first.out) == ["created"] * 3
    assert "now load it:" in first.err
    assert setup(tmp_path, "--json") == 0
    second = capsys.readouterr()
    assert states(second.out) == ["unchanged"] * 3
    assert "now load it:" not in second.err


@pytest.mark.peer
def test_what_nginx_does_not_take_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.require("nginx")
    configured(tmp_path)  # without the module that the script needs

    assert setup(tmp_path) == 2
    said = capsys.readouterr().err
    assert 'unknown directive "js_import"' in said
    assert "libnginx-mod-http-js" in said
    assert list((tmp_path / "conf.d").iterdir()) == []
    assert list((tmp_path / "front").iterdir()) == []


@pytest.mark.peer
def test_without_njs_it_needs_no_module(tmp_path: Path) -> None:
    peers.require("nginx")
    configured(tmp_path, "njs: false")

    assert setup(tmp_path) == 0
    assert not (tmp_path / "front" / texts.SCRIPT).exists()


@pytest.mark.peer
def test_it_says_when_old_workers_would_live_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.require("nginx")
    configured(tmp_path, "njs: false")
    setup(tmp_path)
    assert "worker_shutdown_timeout is not set" in capsys.readouterr().err
    main = tmp_path / "main.conf"
    main.write_text("worker_shutdown_timeout 1h;\n" + main.read_text())
    setup(tmp_path)

    assert "worker_shutdown_timeout" not in capsys.readouterr().err


@pytest.mark.peer
def test_it_says_when_nginx_does_not_read_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.require("nginx")
    configured(tmp_path, "njs: false")
    argv = ["setup", "nginx", "--config", str(tmp_path / "watchdog.yaml")]

    assert run([*argv, "--server", str(tmp_path / "aside.conf")]) == 0
    assert "nginx does not read" in capsys.readouterr().err


@pytest.mark.peer
def test_an_include_that_points_at_the_standby_stays(tmp_path: Path) -> None:
    peers.require("nginx")
    configured(tmp_path, "njs: false", 'standby: {url: "http://127.0.0.1:8001"}')
    setup(tmp_path)
    include = tmp_path / "front" / "deepseek.conf"
    include.write_text("server 127.0.0.1:8001;\n")

    assert setup(tmp_path) == 0
    assert include.read_text() == "server 127.0.0.1:8001;\n"


@pytest.mark.peer
def test_a_file_changed_by_hand_is_replaced_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.require("nginx")
    configured(tmp_path, "njs: false")
    setup(tmp_path)
    server = tmp_path / "conf.d" / "deepseek.conf"
    server.write_text(server.read_text().replace("600s", "900s"))
    capsys.readouterr()

    assert setup(tmp_path) == 2
    assert "--force" in capsys.readouterr().err
    assert "900s" in server.read_text()
    assert setup(tmp_path, "--force") == 0
    assert "900s" not in server.read_text()


@pytest.mark.peer
def test_our_own_file_follows_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers.require("nginx")
    configured(tmp_path, "njs: false")
    setup(tmp_path)
    config = tmp_path / "watchdog.yaml"
    config.write_text(config.read_text().replace("18080", "18081"))
    capsys.readouterr()

    assert setup(tmp_path, "--json") == 0
    assert states(capsys.readouterr().out) == ["updated", "unchanged"]


def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(tmp_path)

    assert setup(tmp_path, "--dry-run", "--json") == 0
    assert states(capsys.readouterr().out) == ["would create"] * 3
    assert not (tmp_path / "conf.d").exists()


def test_it_prints_the_server_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(tmp_path)

    assert setup(tmp_path, "--print") == 0
    shown = capsys.readouterr().out
    assert f"include {tmp_path}/front/deepseek.conf;" in shown
    assert "@" not in shown.replace("@unavailable", "").replace("@timeout", "").replace(
        "@too_large", ""
    )
    assert not (tmp_path / "front").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nothing"], "no such service"),
        (["--tls-key", "/k"], "certificate and key belong together"),
    ],
)
def test_a_wrong_word_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    configured(tmp_path)

    assert setup(tmp_path, *argv) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_without_nginx_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configured(tmp_path)
    path.write_text(path.read_text().replace(str(peers.find("nginx") or "nginx"), "no-such-nginx"))

    assert setup(tmp_path) == 2
    assert "no-such-nginx is not on this node" in capsys.readouterr().err
    assert list((tmp_path / "conf.d").iterdir()) == []


def service(text: str) -> Service:
    return parse(f"services: {{a: {{{text}}}}}").services["a"]


FRONT = "front: {nginx: /etc/nginx/v/a.conf, url: 'http://127.0.0.1:80'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url: 'http://a:1', front: {nginx: /x/a.conf, url: 'https://a'}", "no certificate"),
        ("url: 'http://a:1', standby: {url: 'https://b:2'}, " + FRONT + "}", "the other by https"),
        ("url: 'http://a:1/v2', " + FRONT + "}", "not at a path"),
        ("url: 'http://a;b:1', " + FRONT + "}", "no host"),
        ("url: 'http://a:1', " + FRONT + ", cache: '/a; rubbish'}", "no plain word"),
        ("url: 'http://a:1', " + FRONT + ", cache: '/a\nb'}".replace("\n", " "), "no plain word"),
    ],
)
def test_what_nginx_cannot_be_told_is_refused(text: str, said: str) -> None:
    def both() -> Any:
        chosen = service(text)
        return texts.server_text("a", chosen) + texts.first_include("a", chosen)

    with pytest.raises(ConfigError, match=said):
        both()


@pytest.mark.parametrize(
    ("more", "line"),
    [("", "listen 127.0.0.1:80;"), (", listen: '0.0.0.0:80'", "listen 0.0.0.0:80;")],
)
def test_nginx_listens_where_users_come_in(more: str, line: str) -> None:
    text = texts.server_text("a", service("url: 'http://a:1', " + FRONT + more + "}"))

    assert f"    {line}\n" in text


def test_a_header_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError):
        service("url: 'http://a:1', " + FRONT + """, tenants: ['X"; evil']}""")


def test_two_services_never_share_a_name_in_nginx() -> None:
    names = ["a-b", "a_b", "a.b", "front_a_b", "ab"]

    assert len({texts.identifier(name) for name in names}) == len(names)
