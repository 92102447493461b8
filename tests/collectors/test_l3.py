"""L3 and memory counters: which are chosen from sysfs, what is made of them, and the four refusals."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.system import fake_system
from vllm_watchdog.collectors.l3 import L3
from vllm_watchdog.watchdog.cachecounters import encoded
from vllm_watchdog.watchdog.errors import NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Sample
from vllm_watchdog.watchdog.perf import Counter, Counts, RealPerf, attributes, scaled
from vllm_watchdog.watchdog.system import System

PMUS = "sys/bus/event_source/devices"
V1 = {"rd_cpipe": "config=0x00", "wr_cpipe": "config=0x01", "rd_hit_cpipe": "config=0x02"}
V2 = {"l3c_hit": "event=0x48", "l3c_ref": "event=0xb8", "cycles": "event=0x7f"}
DDR = {"flux_wr": "config=0x00", "flux_rd": "config=0x01"}


class FakePerf:
    """Counters with values given by (type, config, cpu); ``refuse`` maps a PMU's type to an errno."""

    def __init__(
        self,
        values: Mapping[tuple[int, int, int], float | None],
        refuse: Mapping[int, int] | None = None,
    ) -> None:
        self.values = dict(values)
        self.refuse = dict(refuse or {})
        self.token = "a"
        self.asked: dict[str, list[Counter]] = {}

    def read(self, owner: str, counters: Sequence[Counter]) -> Counts:
        self.asked[owner] = list(counters)
        for counter in counters:
            if counter.type in self.refuse:
                number = self.refuse[counter.type]
                raise OSError(number, os.strerror(number))
        return Counts(self.token, tuple(self.values[c.type, c.config, c.cpu] for c in counters))

    def close(self, owner: str) -> None:
        self.asked.pop(owner, None)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def pmu(root: Path, name: str, number: int, cpumask: str, events: Mapping[str, str]) -> None:
    base = f"{PMUS}/{name}"
    write(root, f"{base}/type", str(number))
    write(root, f"{base}/cpumask", cpumask)
    write(root, f"{base}/format/event", "config:0-7")
    for event, terms in events.items():
        write(root, f"{base}/events/{event}", terms)


def cores(root: Path, online: str, caches: Mapping[int, tuple[str, str]]) -> None:
    """``caches``: CPU → (CPUs that share its L3, the L3's number)."""
    write(root, "sys/devices/system/cpu/online", online)
    for cpu, (shared, number) in caches.items():
        base = f"sys/devices/system/cpu/cpu{cpu}/cache/index3"
        write(root, f"{base}/shared_cpu_list", shared)
        write(root, f"{base}/id", number)


def node(root: Path, perf: FakePerf) -> System:
    return replace(fake_system(root=root), perf=perf)


def run(system: System, collector: L3 | None = None) -> dict[tuple[str, ...], float]:
    """One run as the host makes it: series by name and label values."""
    found = {}
    for item in (collector or L3()).collect(system):
        if isinstance(item, Checkpoint):
            system.checkpoints.put("l3", item.doc)
        elif isinstance(item, Sample):
            key = (item.name, *(value for _, value in item.labels))
            found[key] = item.value
    return found


def hip08(root: Path) -> None:
    """Two dies, two L3 slices each, and a memory controller on the first."""
    pmu(root, "hisi_sccl1_l3c0", 20, "0", V1)
    pmu(root, "hisi_sccl1_l3c1", 21, "0", V1)
    pmu(root, "hisi_sccl3_l3c8", 22, "24", V1)
    pmu(root, "hisi_sccl3_l3c9", 23, "24", V1)
    pmu(root, "hisi_sccl1_ddrc0", 30, "0", DDR)
    pmu(root, "hisi_sccl1_ddrc1", 31, "0", DDR)
    pmu(root, "hisi_sccl1_hha2", 40, "0", {"rx_ops_num": "config=0x00"})


HIP08 = {
    (20, 0, 0): 100_000.0,
    (20, 2, 0): 50_000.0,
    (21, 0, 0): 300_000.0,
    (21, 2, 0): 150_000.0,
    (22, 0, 24): 1_000.0,
    (22, 2, 24): 900.0,
    (23, 0, 24): 1_000.0,
    (23, 2, 24): 900.0,
    (30, 0, 0): 2.0,
    (30, 1, 0): 10.0,
    (31, 0, 0): 3.0,
    (31, 1, 0): 20.0,
}


def test_hip08_sums_the_slices_of_each_die(tmp_path: Path) -> None:
    hip08(tmp_path)

    found = run(node(tmp_path, FakePerf(HIP08)))

    assert found == {
        ("l3_cache_references_total", "1"): 400_000.0,
        ("l3_cache_hits_total", "1"): 200_000.0,
        ("l3_cache_references_total", "3"): 2_000.0,
        ("l3_cache_hits_total", "3"): 1_800.0,
        ("ddr_counters_state", "counting"): 1.0,
        ("ddr_bytes_total", "1", "read"): 960.0,
        ("ddr_bytes_total", "1", "write"): 160.0,
    }


def test_the_ratio_is_that_of_the_time_between_two_readings(tmp_path: Path) -> None:
    hip08(tmp_path)
    perf = FakePerf(HIP08)
    system = node(tmp_path, perf)
    run(system)
    perf.values[20, 0, 0] += 60_000.0
    perf.values[20, 2, 0] += 50_000.0
    perf.values[21, 0, 0] += 40_000.0
    perf.values[21, 2, 0] += 30_000.0
    perf.values[22, 0, 24] += 9_999.0

    found = run(system)

    assert found["l3_cache_hit_ratio", "1"] == 0.8
    assert ("l3_cache_hit_ratio", "3") not in found  # too few references to mean anything


def test_counters_that_were_opened_anew_give_no_ratio(tmp_path: Path) -> None:
    hip08(tmp_path)
    perf = FakePerf(HIP08)
    system = node(tmp_path, perf)
    run(system)
    perf.token = "b"
    perf.values = {key: value * 3 for key, value in HIP08.items()}

    assert ("l3_cache_hit_ratio", "1") not in run(system)


def test_counters_that_went_back_give_no_ratio(tmp_path: Path) -> None:
    hip08(tmp_path)
    perf = FakePerf(HIP08)
    system = node(tmp_path, perf)
    run(system)
    perf.values = {key: value / 2 for key, value in HIP08.items()}

    assert ("l3_cache_hit_ratio", "1") not in run(system)


def test_the_second_generation_is_told_by_its_events(tmp_path: Path) -> None:
    pmu(tmp_path, "hisi_sccl2_l3c0", 50, "8-15", V2)
    perf = FakePerf({(50, 0xB8, 8): 4_000_000.0, (50, 0x48, 8): 3_000_000.0})

    found = run(node(tmp_path, perf))

    assert found == {
        ("l3_cache_references_total", "2"): 4_000_000.0,
        ("l3_cache_hits_total", "2"): 3_000_000.0,
    }


def test_elsewhere_the_cores_count_reads_of_the_last_level(tmp_path: Path) -> None:
    cores(tmp_path, "0-3", {0: ("0-1", "0"), 2: ("2-3", "7")})
    accesses, misses = 2, 2 | 1 << 16
    perf = FakePerf(
        {
            (3, accesses, 0): 600.0,
            (3, misses, 0): 100.0,
            (3, accesses, 1): 400.0,
            (3, misses, 1): 150.0,
            (3, accesses, 2): 10.0,
            (3, misses, 2): 0.0,
            (3, accesses, 3): 10.0,
            (3, misses, 3): 20.0,  # read a little later than the accesses
        }
    )

    found = run(node(tmp_path, perf))

    assert found == {
        ("l3_cache_references_total", "0"): 1000.0,
        ("l3_cache_hits_total", "0"): 750.0,
        ("l3_cache_references_total", "7"): 20.0,
        ("l3_cache_hits_total", "7"): 10.0,
    }


def test_of_a_die_with_many_cores_at_most_sixteen_are_counted(tmp_path: Path) -> None:
    cores(tmp_path, "0-39", {0: ("0-39", "0")})
    perf = FakePerf({}, refuse={3: errno.ENOENT})

    with pytest.raises(NotSupported):
        run(node(tmp_path, perf))

    assert [c.cpu for c in perf.asked["l3"][::2]] == [
        0,
        3,
        6,
        9,
        12,
        15,
        18,
        21,
        24,
        27,
        30,
        33,
        36,
        39,
    ]


def test_intel_falls_back_to_its_architectural_events(tmp_path: Path) -> None:
    cores(tmp_path, "0", {0: ("0", "0")})
    write(tmp_path, "proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel")
    perf = FakePerf({(0, 2, 0): 50.0, (0, 3, 0): 10.0}, refuse={3: errno.ENOENT})

    assert run(node(tmp_path, perf))["l3_cache_hits_total", "0"] == 40.0


def test_other_cores_do_not_as_those_events_mean_another_cache_there(tmp_path: Path) -> None:
    cores(tmp_path, "0", {0: ("0", "0")})
    write(tmp_path, "proc/cpuinfo", "CPU implementer : 0x48")
    perf = FakePerf({}, refuse={3: errno.ENOENT})

    with pytest.raises(NotSupported, match="cannot count its L3 cache"):
        run(node(tmp_path, perf))


def test_amd_counts_lookups_and_misses_of_each_l3(tmp_path: Path) -> None:
    pmu(tmp_path, "amd_l3", 12, "0,8", {})
    write(tmp_path, f"{PMUS}/amd_l3/format/umask", "config:8-15")
    cores(tmp_path, "0-15", {0: ("0-7", "0"), 8: ("8-15", "1")})
    perf = FakePerf(
        {(12, 0xFF04, 0): 90.0, (12, 0x104, 0): 9.0, (12, 0xFF04, 8): 50.0, (12, 0x104, 8): 25.0}
    )

    found = run(node(tmp_path, perf))

    assert found["l3_cache_hits_total", "0"] == 81.0
    assert found["l3_cache_hits_total", "1"] == 25.0


def test_a_node_without_such_counters_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="no L3 counters"):
        run(node(tmp_path, FakePerf({})))


def test_a_kernel_without_the_event_is_not_supported(tmp_path: Path) -> None:
    hip08(tmp_path)

    with pytest.raises(NotSupported, match="Operation not supported"):
        run(node(tmp_path, FakePerf({}, refuse={20: errno.EOPNOTSUPP})))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_missing_permission_names_what_is_missing(tmp_path: Path, number: int) -> None:
    hip08(tmp_path)
    write(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2")

    with pytest.raises(
        SourceError, match=r"CAP_PERFMON.*perf_event_paranoid at 0 or less; it is 2"
    ):
        run(node(tmp_path, FakePerf({}, refuse={20: number})))


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EBUSY])
def test_a_counter_that_another_program_holds_is_told_as_such(tmp_path: Path, number: int) -> None:
    hip08(tmp_path)

    with pytest.raises(SourceError, match="held by another program"):
        run(node(tmp_path, FakePerf({}, refuse={22: number})))


def test_a_counter_that_never_ran_is_held_by_another_program(tmp_path: Path) -> None:
    hip08(tmp_path)

    with pytest.raises(SourceError, match="never ran"):
        run(node(tmp_path, FakePerf({**HIP08, (20, 2, 0): None})))


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (errno.EAGAIN, "busy"),
        (errno.EACCES, "not_permitted"),
        (errno.ENOENT, "unsupported"),
    ],
)
def test_memory_counters_that_are_refused_leave_the_l3_alone(
    tmp_path: Path, number: int, state: str
) -> None:
    hip08(tmp_path)

    found = run(node(tmp_path, FakePerf(HIP08, refuse={31: number})))

    assert found["l3_cache_hits_total", "1"] == 200_000.0
    assert found["ddr_counters_state", state] == 1.0
    assert ("ddr_bytes_total", "1", "read") not in found


def test_a_sum_that_lacks_a_memory_channel_is_not_given(tmp_path: Path) -> None:
    hip08(tmp_path)

    found = run(node(tmp_path, FakePerf({**HIP08, (31, 1, 0): None})))

    assert [key for key in found if key[0] == "ddr_bytes_total"] == []
    assert found["ddr_counters_state", "busy"] == 1.0


def test_terms_are_laid_out_as_the_format_says() -> None:
    formats = {"event": "config:0-7,32-35", "umask": "config:8-15", "datasrc": "config1:4-8"}

    assert encoded("event=0x2a5,umask=0xf,datasrc=3", formats) == {
        "config": 0x2_0000_0FA5,
        "config1": 0x30,
        "config2": 0,
    }


@pytest.mark.parametrize("terms", ["event=x", "colour=1", "event=0x2,,"])
def test_terms_that_cannot_be_read_are_refused(terms: str) -> None:
    with pytest.raises(SourceError, match="event term"):
        encoded(terms, {"event": "config:0-7"})


def test_a_damaged_cpumask_is_refused(tmp_path: Path) -> None:
    pmu(tmp_path, "hisi_sccl1_l3c0", 20, "zero", V1)

    with pytest.raises(SourceError, match="CPU list 'zero'"):
        run(node(tmp_path, FakePerf({})))


# ---- the door itself ----


def test_values_are_scaled_for_the_time_that_another_event_had_the_counter() -> None:
    def reading(value: int, enabled: int, running: int) -> bytes:
        return b"".join(number.to_bytes(8, "little") for number in (value, enabled, running))

    assert scaled(reading(100, 8, 8)) == 100.0
    assert scaled(reading(100, 8, 2)) == 400.0
    assert scaled(reading(0, 8, 0)) is None


def test_a_counter_whose_cpu_went_away_is_an_error() -> None:
    with pytest.raises(OSError, match="gone"):
        scaled(b"")


def test_attributes_have_a_size_that_every_kernel_takes() -> None:
    assert len(attributes(Counter(1, 2, 0))) == 64
    assert attributes(Counter(1, 2, 0))[4:8] == (64).to_bytes(4, "little")
    assert attributes(Counter(7, 0, 0, config2=1))[4:8] == (72).to_bytes(4, "little")


def real() -> RealPerf:
    perf = RealPerf()
    try:
        perf.read("trial", [Counter(1, 0, 0)])  # the software event that counts a CPU's time
    except OSError as error:
        pytest.skip(f"counting for all processes is not permitted here: {error}")
    finally:
        perf.close("trial")
    return perf


def test_real_counters_stay_open_and_rise() -> None:
    perf = real()

    first = perf.read("l3", [Counter(1, 0, 0)])
    second = perf.read("l3", [Counter(1, 0, 0)])
    other = perf.read("l3", [Counter(1, 3, 0)])
    perf.close("l3")

    assert first.token == second.token != other.token
    assert first.values[0] is not None
    assert second.values[0] is not None
    assert 0 <= first.values[0] <= second.values[0]


def test_a_real_pmu_that_does_not_exist_is_refused_and_leaves_nothing_open() -> None:
    perf = real()
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(OSError) as refusal:
        perf.read("l3", [Counter(1, 0, 0), Counter(9999, 0, 0)])

    assert refusal.value.errno == errno.ENOENT
    assert before == len(os.listdir("/proc/self/fd"))


def test_a_real_uncore_pmu_is_read_through_sysfs(tmp_path: Path) -> None:
    folder = Path("/") / PMUS / "power"
    perf = real()
    if not (folder / "events/energy-psys").exists():
        pytest.skip("this machine has no PMU `power`")
    number = int((folder / "type").read_text())
    terms = (folder / "events/energy-psys").read_text()
    config = encoded(terms, {"event": (folder / "format/event").read_text().strip()})["config"]

    counts = perf.read("power", [Counter(number, config, 0)])
    perf.close("power")

    assert counts.values[0] is not None
