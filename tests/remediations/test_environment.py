"""The file by which a server gets its profile and its cards."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.system import fake_system
from vllm_watchdog.remediations.adapters import environment
from vllm_watchdog.remediations.adapters.managers import Settings
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.system import System

STATE = Path("/state")
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=30)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return fake_system(root=tmp_path)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    system = fake_system(root=tmp_path_factory.mktemp("root"))
    environment.write(system, STATE, "chat", values, mark="act-1", profile="int8")

    assert environment.settings(system, STATE, "chat") == Settings(values, "act-1", "int8")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=x", "x"),
        (" A = x ", "x"),
        ('A="x y"', "x y"),
        ("A='$x \\'", "$x \\"),
        ('A="\\"\\$\\\\n\\n"', '"$\\n\\n'),
        ("A=x\\ y", "x y"),
        ("A=\\\nx", "x"),
        ("A=", ""),
        ("A=--model=/m --x 'y z'", "--model=/m --x 'y z'"),
        ("# no\n; no\n\nA=x", "x"),
    ],
)
def test_profiles_are_read_as_systemd_reads_them(line: str, value: str) -> None:
    assert environment.parse(line, "x") == {"A": value}


@pytest.mark.parametrize("line", ["export A=x", "A", "1A=x", "A-B=x"])
def test_a_line_that_is_no_setting_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(SourceError, match=r"fp16\.env: line 2 is not KEY=value"):
        environment.parse(f"# ours\n{line}", "fp16.env")


@pytest.mark.parametrize("value", ["a\nB=c", "a\0b", "\x1b[0m", "a\rb", "a\u2028b"])
def test_a_value_cannot_become_a_line_of_its_own(system: System, value: str) -> None:
    with pytest.raises(SourceError, match="control character"):
        environment.write(system, STATE, "chat", {"A": value})


def test_taking_back_another_request_s_settings_does_nothing(system: System) -> None:
    environment.configure(system, STATE, "chat", Settings({"A": "1"}, "act-1"))
    environment.restore(system, STATE, "chat", "act-0")

    assert environment.read(system, STATE, "chat") == {"A": "1"}


def test_each_act_is_taken_back_to_what_stood_before_it(system: System) -> None:
    environment.configure(system, STATE, "chat", Settings({"A": "1"}, "act-1"))
    for _ in range(2):  # the second time after a crash
        environment.configure(system, STATE, "chat", Settings({"A": "2"}, "act-2", "int8"))
    environment.restore(system, STATE, "chat", "act-2")

    assert environment.settings(system, STATE, "chat") == Settings({"A": "1"}, "act-1")


def test_the_first_act_is_taken_back_to_no_file(system: System) -> None:
    environment.configure(system, STATE, "chat", Settings({"A": "1"}, "act-1"))
    environment.restore(system, STATE, "chat", "act-1")

    assert system.files.names("/state/services") == []


def test_a_process_proves_its_environment(system: System, tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/environ").write_bytes(b"A=1\0B=x=y\0")

    found = [environment.proved(system, 7, values) for values in ({"B": "x=y"}, {"A": "2"}, {})]
    assert [*found, environment.proved(system, 8, {})] == ["yes", "no", "yes", "no"]
