"""The logs of Ascend's driver and of CANN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.system import fake_system
from vllm_watchdog.collectors.ascend_log import AscendLog, capture
from vllm_watchdog.watchdog.contracts import Collector
from vllm_watchdog.watchdog.errors import NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample
from vllm_watchdog.watchdog.system import System

FOLDER = "var/log/npu/slog/device-3"
HEAD = "[EVENT] KERNEL(3,sklogd):2023-11-14-22:13:10.006.007 [klogd.c:1][5.1] "
OCCUR = HEAD + "fault event, device_id=3, event_id=0x80e01801, assertion=1\n"
RECOVER = HEAD + "fault event, device_id=3, event_id=0x80e01801, assertion=0\n"


class Node:
    def __init__(self, root: Path, **settings: Any) -> None:
        (root / FOLDER).mkdir(parents=True)
        self.path = root / FOLDER / "device-os.log"
        self.path.write_text("")
        self.system: System = fake_system(root=root)
        self.collector = AscendLog(**settings)
        self.run()

    def run(self) -> list[Any]:
        found = list(self.collector.collect(self.system))
        for item in found:
            if isinstance(item, Checkpoint):
                self.system.checkpoints.put(self.collector.instance, item.doc)
        return found

    def write(self, text: str) -> list[Any]:
        with self.path.open("a") as stream:
            stream.write(text)
        return self.run()


def faults(found: list[Any]) -> list[dict[str, str]]:
    return [
        dict(x.labels) for x in found if isinstance(x, Sample) and x.name == "accelerator_fault"
    ]


def events(found: list[Any]) -> list[Event]:
    return [item for item in found if isinstance(item, Event)]


def test_it_is_a_collector() -> None:
    assert isinstance(AscendLog(), Collector)


def test_a_fault_occurs_and_recovers(tmp_path: Path) -> None:
    node = Node(tmp_path)
    occurred = node.write(OCCUR)
    recovered = node.write(RECOVER)

    assert faults(occurred) == [
        {
            "vendor": "ascend",
            "card": "npu3",
            "code": "0x80e01801",
            "kind": "device_ecc",
            "severity": "critical",
        }
    ]
    assert faults(recovered) == []
    assert [event.fields["state"] for event in events(occurred + recovered)] == [
        "occur",
        "recover",
    ]


def test_a_fault_that_comes_back_at_once_is_held_again(tmp_path: Path) -> None:
    assert len(faults(Node(tmp_path).write(OCCUR + RECOVER + OCCUR))) == 1


def test_the_drivers_number_becomes_the_card_that_it_means(tmp_path: Path) -> None:
    node = Node(tmp_path, cards={"3": "0000:c1:00"})

    (event,) = events(node.write(OCCUR))
    assert dict(event.labels) == {"vendor": "ascend", "card": "0000:c1:00"}


def test_held_faults_survive_a_restart(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(OCCUR)
    node.collector = AscendLog()

    assert len(faults(node.run())) == 1


def test_a_recovered_fault_is_not_counted_as_a_new_one(tmp_path: Path) -> None:
    found = Node(tmp_path).write(RECOVER)

    counts = [x for x in found if isinstance(x, Sample) and x.name == "log_events_total"]
    assert {sample.value for sample in counts} == {0.0}


def test_a_node_without_ascend_logs_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(NotSupported):
        list(AscendLog().collect(fake_system(root=tmp_path)))


def test_a_saved_log_gives_events_and_faults() -> None:
    found = capture(OCCUR.encode())

    assert [event.kind for event in events(found)] == ["device_ecc"]
    assert len(faults(found)) == 1


def test_an_empty_saved_log_is_refused() -> None:
    with pytest.raises(SourceError):
        capture(b"  \n")
