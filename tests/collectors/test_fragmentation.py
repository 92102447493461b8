"""Fragmentation: what the plug-in publishes, joined to service and card; out-of-memory messages; and
the plug-in itself beside a torch of the test's own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import collect
from tests.support.proctree import ProcTree
from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.fragmentation import Fragmentation, capture
from vllm_watchdog.watchdog.errors import NoData, NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample
from vllm_watchdog.watchdog.system import System

GIB = 1 << 30
PLUGIN = Path(__file__).parents[2] / "deploy/vllm_plugin"
URL = "http://127.0.0.1:8000"


class Node:
    """A node with a served model (pids 100 to 102) and a folder in which workers publish."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.tree = ProcTree(root)
        self.tree.vllm()
        self.tree.listen((8000, "5000"))
        self.clock = VirtualClock()
        self.system: System = fake_system(root=root, clock=self.clock)
        self.collector = Fragmentation(**{"services": {"deepseek": URL}, **settings})

    def publish(self, pid: int = 102, device: int = 0, **fields: Any) -> None:
        document = {
            "version": 1,
            "pid": pid,
            "started": pid * 10,
            "time": self.clock.wall(),
            "vendor": "nvidia",
            "device": device,
            "bus_id": "0000:53:00",
            "allocated": 6 * GIB,
            "reserved": 8 * GIB,
            "inactive_split": GIB,
            "ooms": 2,
            "alloc_retries": 5,
            **fields,
        }
        name = f"run/vllm-watchdog/allocator/{pid}-{device}-{document['started']}.json"
        self.tree.write(name, json.dumps({k: v for k, v in document.items() if v is not None}))

    def look(self) -> dict[str, tuple[dict[str, str], float]]:
        found = {}
        for item in self.collector.collect(self.system):
            if isinstance(item, Checkpoint):
                self.system.checkpoints.put("fragmentation", item.doc)
            elif isinstance(item, Sample):
                found[item.name] = (dict(item.labels), item.value)
        return found

    def labels(self) -> dict[str, str]:
        return self.look()["memory_fragmentation_ratio"][0]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_workers_figures_are_joined_to_its_service_and_card(node: Node) -> None:
    node.publish()
    labels = {"service": "deepseek", "vendor": "nvidia", "card": "0000:53:00"}

    assert node.look() == {
        "memory_fragmentation_ratio": (labels, 0.25),
        "memory_allocator_allocated_bytes": (labels, 6.0 * GIB),
        "memory_allocator_reserved_bytes": (labels, 8.0 * GIB),
        "memory_allocator_inactive_split_bytes": (labels, 1.0 * GIB),
        "memory_allocator_ooms_total": (labels, 2.0),
        "memory_allocator_retries_total": (labels, 5.0),
    }


def test_workers_that_share_a_card_are_taken_together(node: Node) -> None:
    node.publish(101, allocated=GIB, reserved=2 * GIB)
    node.publish(102, allocated=GIB, reserved=6 * GIB)

    assert node.look()["memory_fragmentation_ratio"][1] == 0.75


def test_a_starting_server_is_known_by_its_command_line(node: Node) -> None:
    node.tree.listen()
    node.publish()

    assert node.labels()["service"] == "deepseek"


def test_a_worker_keeps_its_service_when_its_server_is_gone(node: Node) -> None:
    node.publish()
    node.look()
    node.tree.end(100)
    node.tree.adopt(101)
    node.tree.listen()

    assert node.labels()["service"] == "deepseek"


def test_a_worker_of_no_configured_service_has_none(tmp_path: Path) -> None:
    node = Node(tmp_path, services={"other": "http://127.0.0.1:9999"})
    node.publish()

    assert node.labels() == {"vendor": "nvidia", "card": "0000:53:00"}


def test_without_configured_services_the_discovered_name_is_used(tmp_path: Path) -> None:
    node = Node(tmp_path, services={})
    node.publish()

    assert node.labels()["service"] == "m"


def test_a_containers_worker_is_found_by_its_start(node: Node) -> None:
    node.tree.write("proc/102/status", "Name:\tVLLM::Worker\nNSpid:\t102\t9\n")
    node.publish(9, started=1020)

    assert node.labels()["service"] == "deepseek"


@pytest.mark.parametrize(
    ("fields", "card"),
    [
        ({"bus_id": None, "uuid": "6ba7b810-9dad"}, "0000:64:00"),
        ({"bus_id": None, "uuid": None, "visible": "1,0", "device": 1}, "0000:53:00"),
        ({"bus_id": None, "uuid": None, "visible": "GPU-6ba7"}, "0000:64:00"),
        ({"bus_id": None, "uuid": None, "visible": "MIG-6f0f-11"}, "MIG-6f0f-11"),
        ({"vendor": "ascend", "bus_id": None, "visible": "4,5", "device": 1}, "npu5"),
        ({"vendor": "ascend", "bus_id": None, "device": 3}, "0000:c1:00"),
    ],
)
def test_a_device_is_the_card_that_the_node_knows_it_as(
    tmp_path: Path, fields: dict[str, Any], card: str
) -> None:
    node = Node(tmp_path, npus={"3": "0000:c1:00"})
    for address, uuid in (("0000:53:00.0", "11112222"), ("0000:64:00.0", "6ba7b810-9dad")):
        text = f"Model: \t\t Some GPU\nGPU UUID: \t GPU-{uuid}\nBus Type: \t PCIe\n"
        node.tree.write(f"proc/driver/nvidia/gpus/{address}/information", text)
    device = fields.pop("device", 0)
    node.publish(device=device, **fields)

    assert node.labels()["card"] == card


def test_a_device_that_cannot_be_told_has_no_series(node: Node) -> None:
    node.publish(bus_id=None, uuid="no-such-card")

    assert node.look() == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"allocated": None},
        {"reserved": None},
        {"reserved": 0},
        {"allocated": 9 * GIB},
        {"allocated": -1},
        {"allocated": "much"},
    ],
)
def test_figures_that_make_no_sense_give_no_ratio(node: Node, fields: dict[str, Any]) -> None:
    node.publish(**fields)

    assert "memory_fragmentation_ratio" not in node.look()


@pytest.mark.parametrize("age", [46.0, -3600.0])
def test_old_figures_and_those_of_the_future_are_left_out(node: Node, age: float) -> None:
    node.publish(time=node.clock.wall() - age)

    with pytest.raises(NoData):
        node.look()


def test_figures_of_a_process_that_is_gone_are_left_out(node: Node) -> None:
    node.publish(4711)

    with pytest.raises(NoData):
        node.look()


def test_figures_of_an_earlier_process_with_that_pid_are_left_out(node: Node) -> None:
    node.publish(started=77)

    with pytest.raises(NoData):
        node.look()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 2}', '{"version": 1, "pid": true}'])
def test_a_file_that_is_no_document_is_told_when_nothing_else_is_there(
    node: Node, text: str
) -> None:
    node.tree.write("run/vllm-watchdog/allocator/1-0-10.json", text)

    with pytest.raises(SourceError, match=r"1-0-10\.json"):
        node.look()
    node.publish()
    assert node.look()["memory_fragmentation_ratio"][1] == 0.25


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_word_on_a_process_does_not_count(node: Node, tmp_path: Path) -> None:
    node.publish()
    folder = tmp_path / "run/vllm-watchdog/allocator"
    os.chown(folder / "102-0-1020.json", 65534, 65534)

    with pytest.raises(SourceError, match="not of the user"):
        node.look()


def test_a_node_without_the_plug_in_is_not_supported(node: Node) -> None:
    with pytest.raises(NotSupported, match="/run/vllm-watchdog/allocator"):
        node.look()


# ---- out-of-memory messages ----

CUDA_OOM = (
    "(EngineCore pid=7) ERROR 02-03 04:05:06 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 64.00 MiB. GPU 2 has a total capacity of 80.00 GiB of which 1.00 GiB is free. "
    "Of the allocated memory 45.00 GiB is allocated by PyTorch, and 15.00 GiB is reserved by PyTorch "
    "but unallocated.\n"
)
NPU_OOM = (
    "RuntimeError: NPU out of memory. Tried to allocate 1.00 GiB (NPU 5; 60.00 GiB total capacity; "
    "30.00 GiB already allocated; 30.00 GiB current active; 0.50 GiB free; "
    "40.00 GiB reserved in total by PyTorch)\n"
)


@pytest.mark.parametrize(
    ("text", "labels", "ratio"),
    [
        (CUDA_OOM, {"vendor": "nvidia", "device": "2"}, 0.25),
        (NPU_OOM, {"vendor": "ascend", "device": "5"}, 0.25),
    ],
)
def test_an_out_of_memory_message_tells_the_ratio(
    text: str, labels: dict[str, str], ratio: float
) -> None:
    found = capture(text.encode())

    samples = [item for item in found if isinstance(item, Sample)]
    events = [item for item in found if isinstance(item, Event)]
    assert [(s.name, dict(s.labels), s.value) for s in samples] == [
        ("memory_fragmentation_ratio", labels, ratio)
    ]
    assert [event.kind for event in events] == ["oom_device"]


def test_a_message_that_was_cut_tells_no_ratio() -> None:
    found = capture(CUDA_OOM[:150].encode())

    assert [type(item) for item in found] == [Event]


def test_a_log_without_such_a_message_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="no out-of-memory message"):
        capture(b"INFO all is well\n")


def test_a_captured_file_of_the_plug_in_is_recognised() -> None:
    document = {"version": 1, "pid": 1, "started": 2, "time": 0, "vendor": "ascend", "device": 3}
    document.update(allocated=1, reserved=4)

    found = {item.name: item.value for item in capture(json.dumps(document).encode())}  # type: ignore[union-attr]

    assert found["memory_fragmentation_ratio"] == 0.75


# ---- the plug-in ----

TORCH = '''
"""Stands for torch: it says which of its functions were called too early."""
import types

class Device:
    def __init__(self, ready):
        self.ready = ready
    def is_initialized(self):
        return self.ready
    def device_count(self):
        assert self.ready, "touched before the worker"
        return 2
    def memory_stats(self, device):
        assert self.ready, "touched before the worker"
        if device == 0:
            return {}
        return {"allocated_bytes.all.current": 300, "reserved_bytes.all.current": 400,
                "inactive_split_bytes.all.current": 50, "num_ooms": 1, "num_alloc_retries": 2,
                "active_bytes.all.peak": 9}
    def get_device_properties(self, device):
        return types.SimpleNamespace(uuid="u-1", pci_domain_id=0, pci_bus_id=0x53, pci_device_id=0)

cuda, npu = Device(False), Device(False)
version = types.SimpleNamespace(hip=None)
'''

WORKER = """
import sys, time
import vllm_watchdog_plugin as plugin
plugin.register()
plugin.register()
{body}
"""


def run_worker(tmp_path: Path, body: str, **environ: str) -> tuple[int, str, Path]:
    """A process that loads the plug-in as vLLM would; status, standard error, its folder."""
    (tmp_path / "torch.py").write_text(TORCH)
    wait = (
        "import glob\n"
        "def wait(count=1):\n"
        "    end = time.monotonic() + 20\n"
        f"    while len(glob.glob({str(tmp_path / 'allocator/*.json')!r})) != count:\n"
        "        assert time.monotonic() < end, 'nothing was written'\n"
        "        time.sleep(0.01)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", WORKER.format(body=wait + body)],
        env={
            "PYTHONPATH": f"{PLUGIN}:{tmp_path}",
            "VLLM_WATCHDOG_RUN": str(tmp_path),
            "VLLM_WATCHDOG_INTERVAL": "0.02",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stderr, tmp_path / "allocator"


COPY = "import shutil; wait(); shutil.copytree({0!r}, {1!r})\n"


def published(tmp_path: Path, body: str, **environ: str) -> dict[str, Any]:
    """What a worker wrote, copied before it ended."""
    copy = COPY.format(str(tmp_path / "allocator"), str(tmp_path / "copy"))
    code, error, _ = run_worker(tmp_path, body + copy, **environ)
    assert (code, error) == (0, "")
    (path,) = (tmp_path / "copy").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o644
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_the_plug_in_publishes_once_the_worker_has_set_up_its_device(tmp_path: Path) -> None:
    found = published(
        tmp_path, "import torch; torch.cuda.ready = True\n", CUDA_VISIBLE_DEVICES="3,5"
    )

    assert abs(found.pop("time") - time.time()) < 60
    assert found.pop("pid") > 1
    assert found.pop("started") > 0
    assert found == {
        "version": 1,
        "vendor": "nvidia",
        "device": 1,
        "visible": "3,5",
        "order": None,
        "uuid": "u-1",
        "bus_id": "0000:53:00",
        "rank": None,
        "allocated": 300,
        "reserved": 400,
        "inactive_split": 50,
        "ooms": 1,
        "alloc_retries": 2,
    }


def test_the_plug_in_asks_an_npu_for_its_figures_only(tmp_path: Path) -> None:
    body = "import torch; torch.npu.ready = torch.cuda.ready = True\n"
    found = published(tmp_path, body, ASCEND_RT_VISIBLE_DEVICES="6,7")

    assert (found["vendor"], found["visible"], found["reserved"]) == ("ascend", "6,7", 400)
    assert "uuid" not in found


def test_the_plug_in_neither_imports_torch_nor_touches_a_device_early(tmp_path: Path) -> None:
    body = "time.sleep(0.2); assert 'torch' not in sys.modules\nimport torch; time.sleep(0.2)\n"

    code, error, folder = run_worker(tmp_path, body)

    assert (code, error) == (0, "")
    assert not folder.exists() or list(folder.iterdir()) == []


def test_the_plug_in_removes_its_files_at_the_end(tmp_path: Path) -> None:
    code, error, folder = run_worker(tmp_path, "import torch; torch.cuda.ready = True; wait()\n")

    assert (code, error) == (0, "")
    assert list(folder.iterdir()) == []


FORKED = """
import multiprocessing, torch
def worker():
    torch.cuda.ready = True
    wait()
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=worker)
    child.start(); child.join(); sys.exit(child.exitcode)
"""


def test_the_plug_in_goes_on_in_a_forked_worker_and_cleans_up_there(tmp_path: Path) -> None:
    # Python 3.12 warns of any fork beside a thread; vLLM's own processes have threads anyway.
    code, error, folder = run_worker(
        tmp_path, "import warnings; warnings.simplefilter('ignore')\n" + FORKED
    )

    assert (code, error) == (0, "")
    assert list(folder.iterdir()) == []


def test_the_plug_in_never_disturbs_its_host(tmp_path: Path) -> None:
    (tmp_path / "allocator").write_text("a file where the folder should be")
    body = (
        "import torch, types; torch.cuda.ready = True; time.sleep(0.1)\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: 1 / 0); time.sleep(0.1)\n"
    )

    code, error, _ = run_worker(tmp_path, body)

    assert (code, error) == (0, "")


def test_the_plug_in_can_be_switched_off(tmp_path: Path) -> None:
    body = "import threading; assert threading.active_count() == 1\n"

    assert run_worker(tmp_path, body, VLLM_WATCHDOG_INTERVAL="0")[:2] == (0, "")


def test_what_a_killed_worker_left_long_ago_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "allocator"
    folder.mkdir()
    old, young = folder / "1-0-1.json", folder / "2-0-2.json"
    for path, age in ((old, 7200), (young, 60)):
        path.write_text("{}")
        os.utime(path, (time.time() - age, time.time() - age))

    code, error, _ = run_worker(tmp_path, "wait(1)\n")

    assert (code, error) == (0, "")
    assert [path.name for path in folder.iterdir()] == ["2-0-2.json"]


def test_what_the_plug_in_writes_the_collector_reads(tmp_path: Path) -> None:
    copy = COPY.format(str(tmp_path / "allocator"), str(tmp_path / "copy"))
    body = "import torch; torch.cuda.ready = True\n" + copy
    assert run_worker(tmp_path, body)[:2] == (0, "")
    (path,) = (tmp_path / "copy").glob("*.json")

    found = {item.name: item.value for item in capture(path.read_bytes())}  # type: ignore[union-attr]

    assert found["memory_fragmentation_ratio"] == 0.25


def test_the_plug_ins_entry_point_names_a_function_that_exists() -> None:
    text = (PLUGIN / "pyproject.toml").read_text()

    assert '[project.entry-points."vllm.general_plugins"]' in text
    assert 'vllm_watchdog = "vllm_watchdog_plugin:register"' in text
    assert "def register() -> None:" in (PLUGIN / "vllm_watchdog_plugin.py").read_text()


CAPTURES = Path(__file__).parents[2] / "../shared/data/vllm"


@pytest.mark.skipif(
    not CAPTURES.exists(), reason="the captured logs are not beside this repository"
)
def test_every_captured_out_of_memory_log_gives_the_indexed_rate() -> None:
    rows = [line.split("\t") for line in (CAPTURES / "INDEX.tsv").read_text().splitlines()]
    wanted = {
        row[0]: float(match[1])
        for row in rows
        if (match := re.search(r"\bkind=oom_device\b.*?\bfragmentation=([\d.]+)", "\t".join(row)))
    }

    found = {}
    for name in wanted:
        samples = [x for x in collect("fragmentation", CAPTURES / name) if isinstance(x, Sample)]
        found[name] = samples[-1].value if samples else None
    assert len(wanted) >= 6
    assert found == wanted
