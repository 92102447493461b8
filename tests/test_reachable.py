"""What `check` says of files, folders and programs that a configuration names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.config import parse
from vllm_watchdog.watchdog.reachable import look
from vllm_watchdog.watchdog.system import System


def told(tmp_path: Path, service: str = "", more: str = "") -> list[str]:
    text = f"services: {{chat: {{url: 'http://x', {service}}}}}\n{more}"
    return [f"{p.severity}: {p}" for p in look(parse(text, str(tmp_path / "w.yaml")), System())]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "warning: services.chat.profiles.int8: {}: is not there"),
        (b"", "error: services.chat.profiles.int8: {}: is empty"),
        (b"no line of one\n", "error: services.chat.profiles.int8: {}: line 1 is not KEY=value"),
        (b"A=\xff\xfe\n", "error: services.chat.profiles.int8: {}: is not UTF-8"),
        (b"A=b\0c\n", "error: services.chat.profiles.int8: {}: line 1 is not KEY=value"),
        (b"A=b\x1bc\n", "error: services.chat.profiles.int8: {}: the value of A holds a control"),
        (b"A=" + b"x" * 70_000, "error: services.chat.profiles.int8: {}: is larger than 65536"),
    ],
)
def test_a_profile_that_no_act_could_use_is_named(
    tmp_path: Path, data: bytes | None, said: str
) -> None:
    path = tmp_path / "int8.env"
    if data is not None:
        path.write_bytes(data)

    (problem,) = told(tmp_path, "profiles: {int8: int8.env}")

    assert problem.startswith(said.format(path))


def test_what_is_there_and_good_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "int8.env").write_text("MODEL=/models/a\n")
    (tmp_path / "token").write_text("secret\n")
    front = f"front: {{nginx: {tmp_path}/a.conf, url: 'http://f'}}"

    assert (
        told(
            tmp_path,
            f"profiles: {{int8: int8.env}}, manager: {{command: [sh]}}, {front}",
            f"control: {{token_file: {tmp_path}/token}}",
        )
        == []
    )


def test_an_include_that_is_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.conf").symlink_to("gone.conf")

    (problem,) = told(tmp_path, f"front: {{nginx: {tmp_path}/a.conf, url: 'http://f'}}")

    assert problem.startswith(
        f"warning: services.chat.front.nginx: {tmp_path}/a.conf: is a symbolic link to "
        f"{tmp_path}/gone.conf, which is not there"
    )


def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    problems = told(
        tmp_path,
        f"profiles: {{int8: pipe}}, front: {{nginx: {tmp_path}, url: 'http://f'}}",
        f"control: {{token_file: {tmp_path}}}",
    )

    assert [each.partition(": ")[0] for each in problems] == ["error"] * 3


def test_what_is_not_on_this_machine_is_a_warning(tmp_path: Path) -> None:
    problems = told(
        tmp_path,
        "manager: {command: [/no/such/program]}, front: {nginx: /no/such/a.conf, url: 'http://f'}",
        "tls: {cert_file: /no/c, key_file: /no/k}",
    )

    assert [each.partition(":")[0] for each in problems] == ["warning"] * 4
    assert any("setup nginx" in each for each in problems)
