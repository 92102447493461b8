"""The kernel's log: from the device, the journal, or a syslog file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import ScriptedRunner, fake_system
from vllm_watchdog.collectors.kernel_log import KernelLog, capture
from vllm_watchdog.watchdog.contracts import Collector
from vllm_watchdog.watchdog.errors import NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample, labelset
from vllm_watchdog.watchdog.system import Files, RecordStream, System

XID = "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FAULT = labelset(
    {
        "vendor": "nvidia",
        "card": "0000:c1:00",
        "code": "79",
        "kind": "device_lost",
        "severity": "critical",
    }
)


class Ring:
    """A socket that gives one record a read, as /dev/kmsg does."""

    def __init__(self) -> None:
        import socket

        self._near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        far.setblocking(False)
        self.descriptor = os.dup(far.fileno())
        far.close()

    def put(self, sequence: int, usec: int, text: str, priority: int = 3) -> None:
        self._near.send(f"{priority},{sequence},{usec},-;{text}\n".encode())

    def close(self) -> None:
        self._near.close()


class RingFiles(Files):
    """Fixture files beside a ring."""

    ring: Ring

    def records(self, path: str | Path) -> RecordStream:
        return RecordStream(os.dup(self.ring.descriptor))


@contextmanager
def node(root: Path) -> Iterator[tuple[Ring, System]]:
    """A node that has been up for 1,000 s at 2023-11-14 22:13:20."""
    (root / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    (root / "proc/uptime").write_text("1000.00 500.00\n")
    ring = Ring()
    files = RingFiles(root)
    object.__setattr__(files, "ring", ring)
    try:
        yield ring, replace(fake_system(root=root), files=files)
    finally:
        ring.close()
        os.close(ring.descriptor)


def run(collector: KernelLog, system: System) -> list[Any]:
    found = list(collector.collect(system))
    for item in found:
        if isinstance(item, Checkpoint):
            system.checkpoints.put(collector.instance, item.doc)
    return found


def close(collector: KernelLog) -> None:
    if collector.state.stream is not None:
        collector.state.stream.close()


def events(found: list[Any]) -> list[Event]:
    return [item for item in found if isinstance(item, Event)]


def faults(found: list[Any]) -> list[Sample]:
    return [x for x in found if isinstance(x, Sample) and x.name == "accelerator_fault"]


def test_it_is_a_collector() -> None:
    assert isinstance(KernelLog(), Collector)


def test_a_record_of_the_ring_is_an_event_of_its_card_at_its_time(tmp_path: Path) -> None:
    with node(tmp_path) as (ring, system):
        collector = KernelLog()
        ring.put(1, 990_500_000, XID)
        found = run(collector, system)
        close(collector)

    (event,) = events(found)
    assert (event.kind, event.urgent) == ("device_lost", True)
    assert dict(event.labels) == {"vendor": "nvidia", "card": "0000:c1:00"}
    assert event.time == 1_700_000_000.0 - 9.5
    assert faults(found) == [Sample("accelerator_fault", 1.0, FAULT)]


def test_a_fault_is_held_for_its_time_and_then_ends(tmp_path: Path) -> None:
    with node(tmp_path) as (ring, system):
        collector = KernelLog(hold=60.0)
        ring.put(1, 1_000_000_000, XID)
        run(collector, system)
        system.clock.sleep(59)
        held = faults(run(collector, system))
        system.clock.sleep(1)
        ended = faults(run(collector, system))
        close(collector)

    assert (len(held), ended) == (1, [])


def test_records_of_long_before_the_first_sight_are_passed_over(tmp_path: Path) -> None:
    with node(tmp_path) as (ring, system):
        collector = KernelLog(hold=60.0)
        ring.put(1, 900_000_000, XID)
        found = run(collector, system)
        close(collector)

    assert events(found) == []


def test_a_restart_reads_the_ring_again_and_tells_nothing_twice(tmp_path: Path) -> None:
    with node(tmp_path) as (ring, system):
        first = KernelLog()
        ring.put(1, 999_000_000, XID)
        run(first, system)
        close(first)
        second = KernelLog()
        ring.put(1, 999_000_000, XID)
        ring.put(2, 999_500_000, XID.replace("c1:00", "c2:00"))
        found = run(second, system)
        close(second)

    assert [dict(event.labels)["card"] for event in events(found)] == ["0000:c2:00"]
    assert len(faults(found)) == 2


def test_what_a_process_wrote_into_the_ring_is_no_word_of_the_kernel(tmp_path: Path) -> None:
    with node(tmp_path) as (ring, system):
        collector = KernelLog()
        ring.put(1, 999_000_000, XID, priority=8 + 3)
        found = run(collector, system)
        close(collector)

    assert events(found) == []


def test_records_that_the_ring_overwrote_are_counted_and_told(tmp_path: Path) -> None:
    with node(tmp_path) as (ring, system):
        collector = KernelLog()
        ring.put(7, 999_000_000, "a quiet line")
        first = events(run(collector, system))
        ring.put(11, 999_500_000, "another one")
        (told,) = events(run(collector, system))
        close(collector)

    assert first == []
    assert (told.kind, told.fields) == ("log_lost", {"records": 3})


def test_a_record_over_several_lines_is_one_event(tmp_path: Path) -> None:
    text = (
        "NVRM: The NVIDIA GPU 0000:c1:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system"
        " has\\x0aNVRM: fallen off the bus and is not responding to commands.\n SUBSYSTEM=pci"
    )
    with node(tmp_path) as (ring, system):
        collector = KernelLog()
        ring.put(1, 999_000_000, text)
        found = run(collector, system)
        close(collector)

    assert [event.kind for event in events(found)] == ["device_lost"]
    assert faults(found) == [Sample("accelerator_fault", 1.0, FAULT)]


def test_the_drivers_all_clear_ends_its_demand(tmp_path: Path) -> None:
    line = "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from {} to {}"
    with node(tmp_path) as (ring, system):
        collector = KernelLog()
        ring.put(1, 999_000_000, line.format("0x0 (None)", "0x1 (GPU Reset Required)"))
        asked = faults(run(collector, system))
        ring.put(2, 999_500_000, line.format("0x1 (GPU Reset Required)", "0x0 (None)"))
        cleared = faults(run(collector, system))
        close(collector)

    assert (len(asked), cleared) == (1, [])


def entry(cursor: str, message: Any, usec: int = 1_700_000_000_000_000 - 1_000_000) -> str:
    return json.dumps({"__CURSOR": cursor, "MESSAGE": message, "__REALTIME_TIMESTAMP": str(usec)})


def test_without_the_device_the_journal_is_read_from_its_cursor(tmp_path: Path) -> None:
    base = "journalctl --dmesg --output=json --no-pager --quiet "
    script = {
        base + "--since=-900s": entry("c1", XID) + "\n" + entry("c2", [104, 105]) + "\n{cut",
        base + "--after-cursor=c2": "",
    }
    system = replace(fake_system(root=tmp_path), runner=ScriptedRunner(script))
    collector = KernelLog()
    first = run(collector, system)

    assert [event.time for event in events(first)] == [1_700_000_000.0 - 1.0]
    assert events(run(collector, system)) == []


def test_a_journal_that_fails_is_an_error(tmp_path: Path) -> None:
    from vllm_watchdog.watchdog.system import Finished

    script = {"journalctl --dmesg --output=json --no-pager --quiet --since=-900s": Finished(3, b"")}
    system = replace(fake_system(root=tmp_path), runner=ScriptedRunner(script))

    with pytest.raises(SourceError, match="journalctl"):
        run(KernelLog(), system)


def test_a_syslog_file_is_believed_where_the_kernel_speaks(tmp_path: Path) -> None:
    (tmp_path / "var/log").mkdir(parents=True)
    path = tmp_path / "var/log/kern.log"
    path.write_text("")
    system = fake_system(root=tmp_path)
    collector = KernelLog()
    run(collector, system)
    stamp = "Nov 14 22:13:00 node "
    path.write_text(f"{stamp}kernel: {XID}\n{stamp}mallory: kernel: {XID.replace('c1', 'c2')}\n")
    found = run(collector, system)

    assert [dict(event.labels)["card"] for event in events(found)] == ["0000:c1:00"]


def test_a_node_without_any_kernel_log_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(NotSupported):
        run(KernelLog(), fake_system(root=tmp_path))


def test_a_saved_kernel_log_gives_events_and_faults() -> None:
    found = capture(f"[12.3] {XID}\n".encode())

    assert faults(found) == [Sample("accelerator_fault", 1.0, FAULT)]
    assert [event.kind for event in events(found)] == ["device_lost"]


def test_an_empty_saved_log_is_refused() -> None:
    with pytest.raises(SourceError):
        capture(b"")
