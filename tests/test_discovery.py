"""Finding vLLM servers in the process table."""

from __future__ import annotations

import pytest

from tests.support.system import FakeHost
from vllm_watchdog.watchdog.discovery import Server, servers
from vllm_watchdog.watchdog.system import Process


def process(pid: int, *cmdline: str, ppid: int = 0, name: str = "vllm", **more: object) -> Process:
    return Process(pid, ppid, name, cmdline, 0.0, **more)  # type: ignore[arg-type]


def found(*table: Process) -> list[Server]:
    return servers(FakeHost(table))


def test_a_served_model_is_a_service_under_its_served_name() -> None:
    server = process(
        7,
        "/opt/venv/bin/python3",
        "/opt/venv/bin/vllm",
        "serve",
        "/models/Qwen3-8B",
        "--port",
        "8001",
        "--served-model-name",
        "Qwen3 8B",
        listens=(("0.0.0.0", 8001),),
        environ={"CUDA_VISIBLE_DEVICES": "2,3"},
    )

    assert found(server) == [
        Server("qwen3-8b", "http://127.0.0.1:8001", 7, "/models/Qwen3-8B", "nvidia", ("2", "3"))
    ]


@pytest.mark.parametrize(
    ("cmdline", "url"),
    [
        (
            ("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
            "http://127.0.0.1:8000",
        ),
        (("vllm", "serve", "m", "--port=9000", "--host", "10.1.2.3"), "http://10.1.2.3:9000"),
        (("vllm", "serve", "m", "--host", "::"), "http://127.0.0.1:8000"),
        (("vllm", "serve", "m", "--host", "fd00::1"), "http://[fd00::1]:8000"),
        (("vllm", "serve", "m", "--ssl-certfile", "c.pem"), "https://127.0.0.1:8000"),
    ],
)
def test_the_address_follows_the_arguments(cmdline: tuple[str, ...], url: str) -> None:
    assert [server.url for server in found(process(1, *cmdline))] == [url]


def test_the_listening_port_beats_the_default() -> None:
    (server,) = found(process(1, "vllm", "serve", "m", listens=(("0.0.0.0", 8123),)))

    assert server.url == "http://127.0.0.1:8123"


def test_wrappers_and_engine_children_are_not_servers_of_their_own() -> None:
    table = [
        process(1, "/bin/sh", "-c", "vllm serve m", name="sh"),
        process(2, "vllm", "serve", "m", ppid=1),
        process(3, "vllm", "serve", "m", ppid=2),
        process(4, "VLLM::EngineCore", ppid=2, name="VLLM::EngineCor"),
        process(5, "grep", "vllm serve", name="grep"),
        process(6, name="kthread"),
    ]

    assert [server.pid for server in found(*table)] == [2]


def test_two_servers_of_one_model_carry_their_ports() -> None:
    table = [
        process(1, "vllm", "serve", "org/m", "--port", "8000"),
        process(2, "vllm", "serve", "org/m", "--port", "8001"),
    ]

    assert [server.name for server in found(*table)] == ["m-8000", "m-8001"]


def test_ascend_devices_and_tensor_parallel_size_are_read() -> None:
    (server,) = found(
        process(
            1,
            "vllm",
            "serve",
            "m",
            "--tensor-parallel-size",
            "4",
            environ={"ASCEND_RT_VISIBLE_DEVICES": "0,1,2,3"},
        )
    )

    assert (server.vendor, server.devices, server.tensor_parallel) == (
        "ascend",
        ("0", "1", "2", "3"),
        4,
    )


def test_a_model_name_that_is_no_service_name_is_made_one() -> None:
    (server,) = found(process(1, "vllm", "serve", "/", "--served-model-name", "../../etc"))

    assert server.name == "etc"
