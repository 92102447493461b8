"""Every captured log and page in the shared data folder says what its INDEX says, by the commands
`classify` and `collect --from`.

The expected values are worked out by hand from the INDEX rows; a row without an entry here fails,
so that none is passed over in silence.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import classify, collect
from vllm_watchdog.watchdog.logrecords import LogRecord
from vllm_watchdog.watchdog.logs import Classifier
from vllm_watchdog.watchdog.logs import classify as whole_log
from vllm_watchdog.watchdog.model import Event, Sample

DATA = Path(__file__).parents[1] / "../shared/data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared captures are not here")

Expected = list[tuple[str, dict[str, Any]]]


def xids(*codes: int, **fields: Any) -> Expected:
    kinds = {
        13: "app_fault", 14: "app_fault", 31: "app_fault", 32: "app_fault", 43: "app_fault",
        45: "app_fault", 69: "app_fault", 46: "driver_fault", 62: "driver_fault",
        109: "driver_fault", 119: "driver_fault", 120: "driver_fault", 143: "driver_fault",
        48: "device_ecc", 63: "device_ecc", 64: "device_ecc", 94: "device_ecc", 95: "device_ecc",
        140: "device_ecc", 171: "device_ecc", 74: "nvlink_fault", 79: "device_lost",
        154: "recovery_hint", **dict.fromkeys(range(144, 151), "nvlink_fault"),
    }  # fmt: skip
    return [(kinds[code], {"xid": code, **fields}) for code in codes]


LIFE = "lifecycle"
BMC = [("ExpBoard", 1, "0x5d000003"), *[("Port", 255, "0x29000017")] * 3]
BMC += [("ExpBoard", 1, "0x5d000003")]
BMC += [("NPU", number, "0x56000005") for number in (15, 13, 12, 11, 10, 9, 7, 4, 5)]

# Not events of their own and in no record: statistics, silence, access lines, quiet start-up text.
VLLM: dict[str, Expected] = {
    "logs/access_mixed_health_metrics.log": [],
    "logs/cuda_ecc_zh.log": [("device_ecc", {"severity": "critical"})],
    "logs/cuda_fault_worker_tp2_v1.log": [("worker_exception", {"rank": 0, "pid": 1068781})],
    "logs/cuda_illegal_memory_v1_pp.log": [
        ("device_fault", {"error": "illegal_memory_access", "worker": "PP0", "pid": 23220}),
        ("engine_init_failed", {"pid": 12244}),
    ],
    "logs/derived_ansi_colour_prefix.log": [("oom_device", {"device": 1, "tried_mib": 270.0})],
    "logs/engine_dead_v0_no_heartbeat.log": [
        ("engine_dead", {"cause": "no_heartbeat"}),
        ("request_error_server", {"status": 500}),
        (LIFE, {"phase": "shutdown"}),
        ("server_exit", {"pid": 1}),
    ],
    "logs/engine_dead_v1_stream.log": [
        (
            "engine_dead",
            {
                "severity": "critical",
                "failed_request": "chatcmpl-8a6fdecb7b8e43bf85c67af88a39f279",
            },
        ),
        ("request_error_server", {}),
    ],
    "logs/engine_init_failed_apiserver.log": [("engine_init_failed", {"failed_procs": "{}"})],
    "logs/engine_init_failed_named_proc.log": [
        ("engine_init_failed", {"proc": "EngineCore_0", "exit": 1})
    ],
    "logs/engine_proc_died_parent_exit.log": [
        ("engine_proc_died", {"name": "EngineCore_DP0", "severity": "critical"}),
        *[(LIFE, {"phase": "worker_stop", "worker": f"TP{rank}"}) for rank in (0, 2, 1, 3)],
    ],
    "logs/engine_proc_died_v0_pid.log": [("engine_proc_died", {"pid": 77}), ("engine_dead", {})],
    "logs/exit_code_zero_after_crash.log": [("server_exit", {"status": 0})],
    "logs/hang_v0_stats_then_nccl_timeout_ray_colour.log": [
        (
            "collective_timeout",
            {"rank": 4, "op": "ALLREDUCE", "timeout_ms": 1800000, "seq": 20518},
        )
    ],
    "logs/kernel_xid_119_gsp.log": xids(
        119, bus_id="0000:9b:00", pid=2024380, name="nvidia-smi", action="reset_card"
    ),
    "logs/kernel_xid_13_109.log": [
        ("context", {}),
        *xids(13, 13, 13, bus_id="0000:cb:00"),
        *xids(109, pid=1797828),
    ],
    "logs/kernel_xid_43_31_94.log": [
        *xids(43, bus_id="0000:00:05", pid=1045242),
        *xids(43, pid=1084984),
        *xids(31, bus_id="0000:00:07", pid=2512125),
        *xids(94, bus_id="0000:00:08"),
    ],
    "logs/kv_no_memory_compose_prefix.log": [
        ("kv_cache_unavailable", {"severity": "critical", "phase": "startup"})
    ],
    "logs/kv_no_memory_v1_source_echo.log": [("kv_cache_unavailable", {})],
    "logs/nccl_error_ray_repeated.log": [
        ("collective_error", {"error": "unhandled cuda error", "pid": 11305, "copies": 6})
    ],
    # The row speaks of five processes; the file holds the lines of four.
    "logs/nccl_warn_nvls.log": [
        ("context", {"device": device, "message": "Cuda failure 1 'invalid argument'"})
        for device in (5, 4, 2, 3)
    ],
    "logs/nccl_watchdog_v0_worker_abort.log": [
        ("worker_died", {"pid": 1159, "exit": -6}),
        (
            "collective_timeout",
            {"rank": 0, "op": "ALLREDUCE", "seq": 2, "timeout_ms": 600000, "ran_ms": 600059},
        ),
    ],
    "logs/npu_507011_double_prefix.log": [
        (
            "npu_error",
            {
                "code": "507011",
                "class": "model_execution",
                "tp": 6,
                "dp": 0,
                "ep": 6,
                "pid": 17148,
            },
        )
    ],
    "logs/npu_507014_aicore_timeout.log": [
        ("collective_abort", {"rank": 7, "device": 7, "pid": 402, "code": "ERR02005"}),
        ("npu_error", {"code": "507014", "class": "aicore_timeout", "device": 4, "pid": 285}),
    ],
    "logs/npu_507035_engine_dead.log": [
        ("npu_error", {"code": "507035", "class": "device_fault"}),
        ("engine_dead", {}),
    ],
    "logs/npu_507048_internal_task_timeout.log": [
        (
            "npu_error",
            {
                "code": "507048",
                "class": "task_timeout",
                "pid": 413,
                "worker_pid": 697,
                "device": 0,
                "secondary": "ERR00100",
            },
        )
    ],
    "logs/npu_ei0006_socket_timeout.log": [
        (
            "hccl_link",
            {"code": "EI0006", "rank": 1, "device": 1, "pid": 1292363, "secondary": "ERR01100"},
        )
    ],
    "logs/npu_el0004_alloc_failed.log": [
        ("device_fault", {"error": "sdma", "device": 4, "pid": 3132}),
        ("npu_error", {"code": "EL0004", "runtime": "207001", "class": "device_memory"}),
    ],
    "logs/npu_hccl_fftsplus_timeout_zh.log": [
        (
            "hccl_timeout",
            {
                "class": "notify_wait",
                "timeout_s": 1836,
                "stream": 9,
                "task": 51052,
                "chips": "0,2,4,5,6,7",
            },
        )
    ],
    "logs/npu_hccl_plog_link.log": [
        ("hccl_link", {"cause": "port_in_use", "port": 16666}),
        (
            "hccl_link",
            {"cause": "establish_timeout", "rank": 12, "timeout_s": 120, "pid": 2717288},
        ),
    ],
    "logs/npu_hccl_watchdog_timeout.log": [
        (
            "collective_timeout",
            {
                "backend": "HCCL",
                "rank": 1,
                "op": "ALLREDUCE",
                "seq": 196,
                "timeout_ms": 3600000,
                "ran_ms": 3600185,
            },
        )
    ],
    "logs/npu_lost_heartbeat.log": [
        ("device_lost", {"device": 1, "pid": 389, "code": "507010", "secondary": "EL0001"})
    ],
    "logs/npu_oom_other_process_holds_memory.log": [
        (
            "oom_device",
            {
                "device": "npu:0",
                "tried_mib": 22.0,
                "total_gib": 60.97,
                "allocated_gib": 10.24,
                "free_mib": 19.52,
                "reserved_gib": 10.65,
                "outside_pytorch_gib": 50.3,
                "cause": "foreign_process",
            },
        )
    ],
    "logs/npu_oom_ray_repeated.log": [
        (
            "oom_device",
            {
                "device": "npu:3",
                "pid": 45464,
                "tried_mib": 30.0,
                "total_gib": 60.96,
                "allocated_gib": 60.34,
                "active_gib": 60.34,
                "free_mib": 14.24,
                "reserved_gib": 60.6,
                "fragmentation": 0.0043,
                "cause": "capacity",
                "copies": 6,
            },
        ),
        ("npu_error", {"code": "ERR99999", "role": "secondary"}),
    ],
    "logs/npu_oom_zh_bracket.log": [
        (
            "oom_device",
            {
                "device": "npu:0",
                "tried_gib": 3.47,
                "total_gib": 60.97,
                "allocated_gib": 58.92,
                "free_gib": 1.66,
                "reserved_gib": 58.95,
                "fragmentation": 0.0005,
                "cause": "capacity",
            },
        )
    ],
    "logs/npu_shm_broadcast_timeout.log": [
        ("rpc_timeout", {"pid": 47415}),
        ("engine_dead", {"pid": 47415}),
        ("engine_dead", {"pid": 325607}),
    ],
    "logs/npu_stats_before_freeze.log": [],
    "logs/oom_cuda_kib_truncated_title.log": [
        ("oom_device", {"device": 6, "tried_mib": 2.0, "total_gib": 44.53, "free_kib": 448.0})
    ],
    "logs/oom_cuda_private_pools.log": [
        (
            "oom_device",
            {
                "device": 0,
                "pid": 8884,
                "tried_mib": 786.0,
                "total_gib": 79.11,
                "free_mib": 140.75,
                "holder_pid": 3270336,
                "used_gib": 78.96,
                "allocated_gib": 68.83,
                "private_pools_mib": 660.0,
                "reserved_unalloc_mib": 331.08,
                "fragmentation": 0.0047,
            },
        )
    ],
    "logs/oom_cuda_quoted_repr.log": [
        (
            "oom_device",
            {
                "device": 0,
                "tried_mib": 524.0,
                "total_gib": 15.77,
                "free_mib": 137.12,
                "holder_pid": 6513,
                "used_gib": 15.63,
                "allocated_gib": 13.81,
                "private_pools_mib": 106.0,
                "reserved_unalloc_mib": 121.43,
                "fragmentation": 0.0085,
            },
        )
    ],
    "logs/oom_cuda_then_fatal_signal.log": [
        (
            "oom_device",
            {
                "device": 0,
                "tried_gib": 1.16,
                "total_gib": 7.75,
                "free_gib": 1.17,
                "used_gib": 5.02,
                "allocated_gib": 4.81,
                "reserved_unalloc_mib": 18.97,
                "fragmentation": 0.0038,
                "severity": "critical",
            },
        ),
        ("engine_dead", {"cause": "oom_device"}),
    ],
    "logs/oom_cuda_worker_rank1.log": [
        (
            "oom_device",
            {
                "device": 1,
                "rank": 1,
                "pid": 194255,
                "tried_mib": 270.0,
                "total_gib": 21.98,
                "free_mib": 156.94,
                "used_gib": 21.8,
                "allocated_gib": 21.42,
                "reserved_unalloc_mib": 24.12,
                "fragmentation": 0.0011,
                "cause": "capacity",
            },
        )
    ],
    "logs/preemption_v0_warning.log": [
        (
            "preemption",
            {"mode": "RECOMPUTE", "group": 147, "cumulative": 1, "severity": "warning"},
        )
    ],
    "logs/prefix_journald.log": [],
    "logs/ray_actor_died.log": [
        (
            "ray_actor_died",
            {"actor_pid": 87687, "exit_type": "SYSTEM_ERROR", "hint": "host OOM or SIGSEGV"},
        )
    ],
    "logs/request_400_context_length.log": [
        (
            "request_error_client",
            {"status": 400, "max_len": 16384, "requested": 122946, "severity": "info"},
        )
    ],
    "logs/request_error_apiserver_prefix.log": [
        ("request_error_client", {"pid": 9880, "severity": "info"})
    ],
    "logs/shm_broadcast_stall_double_prefix.log": [
        ("ipc_stall", {"waited_s": 60, "severity": "warning"})
    ]
    * 2,
    "logs/shutdown_graceful_v1.log": [(LIFE, {"phase": "shutdown"})],
    "logs/sleep_wake_level2.log": [
        (LIFE, {"phase": "sleep"}),
        (LIFE, {"phase": "wake", "tags": "weights"}),
        (LIFE, {"phase": "reload"}),
        (LIFE, {"phase": "wake", "tags": "kv_cache"}),
    ],
    "logs/sleep_with_requests_in_flight.log": [
        (LIFE, {"phase": "sleep", "freed_gib": 35.43, "left_gib": 1.19}),
        ("worker_exception", {}),
    ],
    "logs/startup_v1_worker_progress.log": [
        (
            LIFE,
            {
                "phase": "startup",
                "kv_memory_gib": 18.83,
                "kv_tokens": 176240,
                "max_concurrency": 21.51,
                "load_s": 0.38,
            },
        )
    ],
    "logs/stats_v0_then_engine_dead.log": [("engine_dead", {"severity": "critical", "copies": 5})],
    "logs/stats_v1_kv_pressure_queue.log": [],
    "logs/stats_v1_normal_with_access.log": [],
    "logs/stats_v1_stale_after_abort.log": [],
}

STARTED: Expected = [(LIFE, {"phase": "startup"}), (LIFE, {"phase": "ready"})]
STOPPED: Expected = [(LIFE, {"phase": "shutdown"})]
REAL: dict[str, Expected] = {
    "start/startup-eager.log": STARTED,
    "start/startup-v0.28.log": STARTED,
    "preemption/server.log": [
        *STARTED,
        *[(LIFE, {"phase": phase}) for phase in ("sleep", "wake", "pause", "resume")],
        *[(LIFE, {"phase": phase}) for phase in ("sleep", "wake", "pause", "resume")],
        *STOPPED,
        (LIFE, {"phase": "worker_stop"}),
    ],
    "hang-core-idle/server.log": [],
    "hang-core-inflight/server.log": [],
    "hang-worker-300s/server.log": [
        *STARTED,
        *[("ipc_stall", {"severity": "warning"})] * 2,
        *[("ipc_stall", {"severity": "critical"})] * 3,
        ("worker_exception", {}),
        ("engine_dead", {"cause": "rpc_timeout", "error": "TimeoutError"}),
        ("rpc_timeout", {"method": "execute_model"}),
        *STOPPED,
        ("server_exit", {}),
    ],
    "kill9-core/server.log": [
        *STARTED,
        (LIFE, {"phase": "worker_stop"}),
        ("engine_dead", {"severity": "critical"}),
        *[("request_error_server", {"status": 500})] * 21,
        *STOPPED,
        ("server_exit", {}),
    ],
    "kill9-api/server.log": [*STARTED, (LIFE, {"phase": "worker_stop"})],
    "kill9-one-of-two-api-servers/server.log": [
        *STARTED,
        *[("request_error_client", {"status": 400})] * 7,
        ("engine_proc_died", {"name": "ApiServer_0", "severity": "critical"}),
        *STOPPED,
        (LIFE, {"phase": "worker_stop"}),
    ],
    "oomkill-serving/server.log": [
        *STARTED,
        ("worker_died", {"name": "VllmWorker-0"}),
        ("engine_dead", {"cause": "worker_died"}),
        *STOPPED,
        ("server_exit", {}),
    ],
    "oomkill-serving/dmesg.txt": [
        ("host_oom", {"comm": "VLLM::Worker", "scope": "memcg", "severity": "critical"})
    ],
    "sigterm-inflight-hangs/server.log": STOPPED,
    "sigterm-inflight-clean/server.log": [
        *STARTED,
        *STOPPED,
        ("engine_dead", {"during_shutdown": True, "severity": "info"}),
        *[("request_error_server", {"status": 500, "during_shutdown": True})] * 12,
    ],
    "sigterm-core-stopped/server.log": [*STARTED, *STOPPED],
    "sigterm-drain30/server.log": [*STARTED, *STOPPED, (LIFE, {"phase": "worker_stop"})],
    "crash-on-first-request/server.log": [
        *STARTED,
        ("worker_died", {"name": "VllmWorker-0"}),
        ("worker_exception", {}),
        ("engine_dead", {"cause": "worker_died"}),
        ("request_error_server", {"status": 500}),
        *STOPPED,
        ("server_exit", {}),
    ],
    "startfail/port-in-use.log": [("engine_init_failed", {"cause": "port_in_use"})],
    "startfail/truncated-weights.log": [
        (LIFE, {"phase": "startup"}),
        ("worker_exception", {}),
        ("engine_init_failed", {"cause": "weights", "proc": "EngineCore", "exit": 1}),
    ],
    "startfail/kv-too-big.log": [
        (LIFE, {"phase": "startup"}),
        ("worker_exception", {}),
        ("kv_cache_unavailable", {}),
        ("engine_init_failed", {"cause": "kv_cache_unavailable"}),
    ],
    "startfail/max-model-len.log": [("engine_init_failed", {"cause": "configuration"})],
    "startfail/sleepmode-unsupported.log": [("engine_init_failed", {"cause": "configuration"})],
}

NPU: dict[str, Expected] = {
    "bbox_driver_multi_ecc.txt": [("device_ecc", {"device": 2, "code": "0xa8028802"})],
    "bbox_history_exceptions.log": [
        ("npu_event", {"code": "0xb4060007", "module": "TS"}),
        ("device_ecc", {"code": "0xa8028802", "module": "DRIVER"}),
    ],
    "device_imp_link_event.log": [
        (
            "npu_event",
            {"device": 1, "mac_link": 1, "pcs_link": 1, "rf_lf": 1, "pcs_err_cnt": 5},
        )
    ],
    "device_lost_heartbeat_EL0001_507010.log": [
        ("device_lost", {"device": 1, "code": "507010", "drv_ret_code": 33})
    ],
    "device_os_event_id_0x8c17a005.log": [("npu_event", {"code": "0x8c17a005"})],
    "device_os_hbm_multibit_ecc_apei.log": [
        ("npu_event", {"code": "0xb4060007", "device": 1}),
        ("npu_event", {"code": "0xb4060007", "device": 0}),
        ("device_ecc", {"node": 2, "module": 22, "address": "0x400cd8d202e0"}),
    ],
    "device_os_pcie_dma_error.log": [("pcie_error", {"err_type": "0x80"})],
    "device_subprocess_timeout_E39007_507033.log": [
        ("npu_error", {"code": "507033", "device": 1, "secondary": "E39007"})
    ],
    "deviceplugin_switch_fault.log": [
        ("npu_event", {"code": "0x00f1ff09", "state": "recover"}),
        ("npu_event", {"code": "0x00f103b0", "state": "occur"}),
        ("npu_event", {"code": "0x00f103b0", "state": "recover"}),
    ],
    "hccl_EI0006_socket_timeout.log": [
        ("hccl_link", {"code": "EI0006", "pid": 749}),
        ("hccl_link", {"code": "EI0006", "device": 1, "rank": 1}),
    ],
    "host_messages_oom_fs_ras.log": [
        ("context", {"what": "conntrack_full"}),
        ("host_oom", {"pid": 6033, "comm": "java"}),
    ],
    "host_vmcore_hard_lockup.txt": [("context", {"what": "hard_lockup", "cpu": 34})],
    "kernel_heartbeat_lost_host_messages.log": [
        ("device_lost", {"device": device, "lost_count": 4, "code": "0x40f84e00"})
        for device in (1, 1000, 10000)
    ],
    "noded_bmc_fault_event.log": [
        ("npu_event", {"device_type": what, "device": number, "code": code})
        for what, number, code in BMC
    ],
    "npu_out_of_memory.log": [
        ("oom_device", {"device": "npu:0", "tried_mib": 22.0}),
        ("oom_device", {"device": "npu:3", "tried_mib": 30.0, "copies": 6}),
        ("oom_device", {"device": "npu:0", "tried_gib": 3.47}),
    ],
    "plog_hccl_cqe_err_status12.log": [
        ("hccl_link", {"cause": "cqe_error", "cqe_status": 12, "device": 4})
    ],
    "plog_hccl_heartbeat_lost_notify_wait.log": [
        ("hccl_timeout", {"class": "notify_wait", "remote_rank": 2}),
        (
            "hccl_link",
            {"cause": "heartbeat_lost", "lost": "10.136.181.175/5", "from": "10.136.181.175/1"},
        ),
    ],
    "plog_hccl_link_error_info.log": [
        ("hccl_link", {"device": 0, "role": "server", "link_status": "no connect"})
    ],
    "plog_hccl_link_error_info_tls_column.log": [
        (
            "hccl_link",
            {"device": 0, "peer_rank": 29, "link_status": "time out", "timeout_s": 120},
        )
    ],
    "plog_hccl_listen_port_busy.log": [
        ("hccl_link", {"cause": "port_in_use", "port": 16666, "ret": 19}),
        ("hccl_link", {"cause": "establish_timeout", "rank": 12, "timeout_s": 120}),
    ],
    "plog_hccl_p2p_timeout.log": [
        (
            "hccl_link",
            {"cause": "p2p_timeout", "device": 0, "remote": 2, "errno": "0x0000000005010010"},
        )
    ],
    "plog_hccl_socket_build_failed.log": [("hccl_link", {"errno": "0x0000000005010006"})],
    "plog_runtime_malloc_fail_and_sdma.log": [
        *[("device_fault", {"error": "sdma", "device": 0})] * 3,
        ("npu_error", {"class": "device_memory", "device": 0, "drv_ret_code": 6}),
    ],
    "pta_dispatch_timeout.log": [
        ("npu_error", {"device": 3, "err_type": "0x20"}),
        ("collective_timeout", {"device": 3, "cause": "dispatch_timeout"}),
    ],
    "vllm_aicore_timeout_507014.log": [
        ("npu_error", {"code": "507014", "class": "aicore_timeout", "device": 0}),
        ("worker_exception", {"pid": 363}),
    ],
    "vllm_engine_dead_after_507035.log": [
        ("npu_error", {"code": "507035"}),
        ("engine_dead", {"cause": "npu_error"}),
    ],
    "vllm_startup_ranktable_A3.log": [],
    "vllm_vector_core_exception_507035.log": [
        ("npu_error", {"code": "507035", "chip": 6, "rank": 0, "secondary": "EZ9999"})
    ],
}

SUBCODES = "kmsg/xid144-150-subcodes-synthetic.log"
KMSG: dict[str, Expected] = {
    "aer-fatal-nvidia-no-callback.log": [
        ("pcie_error", {"error": "recovery_failed"}),
        ("pcie_error", {"error": "fatal", "severity": "critical"}),
        ("pcie_error", {"error": "recovery_failed"}),
    ],
    "aer-surprise-down-xid79.log": [
        ("pcie_error", {"error": "corrected", "severity": "info"}),
        ("pcie_error", {"error": "fatal", "bus_id": "0000:00:02"}),
        *xids(79, bus_id="0000:02:00"),
    ],
    "fabricmanager-h100.log": [("nvswitch_fault", {"sxid": 12028, "link": 61})],
    "fallen-off-bus-multiline-no-xid.log": [("device_lost", {"bus_id": "0000:b3:00"})],
    "file-max-decode-iso.log": [("context", {"what": "file_max"})] * 2,
    "kmsg-raw-nvswitch-open-negative.log": [],
    "kmsg-raw-peermem.log": [("context", {"what": "peermem_invalid_context"})] * 7,
    "nccl-segfault-decode-iso.log": [
        ("app_fault", {"comm": "pt_main_thread", "library": "libnccl.so.2"})
    ]
    * 2,
    "oom-decode-iso-variants.log": [
        ("context", {"what": "oom_constraint"}),
        ("host_oom", {"pid": 123, "comm": "httpd"}),
        ("host_oom", {"pid": 456, "comm": "python"}),
        ("host_oom", {"pid": 123, "comm": "httpd"}),
        ("host_oom", {"scope": "memcg"}),
        ("context", {"what": "oom_constraint"}),
    ],
    "oom-global-python3.log": [
        (
            "host_oom",
            {"pid": 25315, "comm": "python3", "anon_rss_kB": 31451456, "scope": "global"},
        )
    ],
    "oom-iso-perl.log": [("host_oom", {"pid": 1440763, "comm": "perl", "anon_rss_kB": 60356340})],
    "oom-legacy-wording.log": [
        ("host_oom", {"pid": 13536}),
        ("host_oom", {"pid": 1667, "scope": "memcg"}),
        ("host_oom", {"pid": 1234, "comm": "Plex Media Server"}),
    ],
    "pcie-bandwidth-limited-boot.log": [
        ("pcie_error", {"error": "bandwidth_limited", "bus_id": bus, "gbps": 252.048})
        for bus in ("0000:04:00", "0000:8b:00")
    ],
    "reset-required-no-xid.log": [("recovery_hint", {"action": "reset_card"})],
    "rminitadapter-no-devices.log": [
        ("driver_fault", {"error": "init_failed", "bus_id": "0000:98:00"})
    ],
    "soft-lockup-and-hung-task.log": [
        *[("context", {"what": "soft_lockup"})] * 2,
        *[("context", {"what": "hung_task"})] * 2,
    ],
    "xid-line-shapes-odd.log": xids(14, 13, 31, 32, 32, 69, 13, 79, 46, 94, 94, 95, 95, 74),
    "xid109-two-wordings.log": xids(109, 109, 109),
    "xid119-gsp-rpc-history-h100.log": [
        (kind, {**fields, "name": name})
        for (kind, fields), name in zip(
            xids(119, 119, 119, 119, 119, bus_id="0000:9b:00"),
            ("nvidia-smi", "nvidia-smi", "nvidia-smi", "cache_mgr_main", "gpud"),
            strict=True,
        )
    ],
    "xid119-nvidia-smi-victim-repeats.log": xids(*[119] * 6, pid=1346198),
    "xid120-119-gsp-a100.log": xids(120, 119, 119, bus_id="0000:3b:00"),
    "xid120-new-format-gsp-task-exception.log": xids(120, bus_id="0000:06:00"),
    "xid13-109-peermem.log": [
        ("context", {}),
        *xids(13, 13, 13, 109, bus_id="0000:cb:00"),
    ],
    "xid13-43-decode-iso.log": [
        *xids(*[13] * 16, bus_id="0000:38:00"),
        *xids(43, pid=2924364, name="pt_main_thread"),
    ],
    "xid13-a800-vllm-engine-dead.log": xids(13, 13, 13, bus_id="0000:43:00"),
    "xid140-an-uncorrectable-ecc.log": xids(140, bus_id="0000:2a:00"),
    "xid143-fsp-boot.log": xids(143, bus_id="0000:02:00"),
    "xid149-154-nvlink5-chain-gb200.log": [
        *xids(149, bus_id="0009:01:00"),
        *xids(154, bus_id="0009:01:00", recovery=4, action="drain_and_reset"),
        *xids(149, bus_id="0008:01:00"),
        *xids(154, bus_id="0019:01:00", recovery=1, action="reset_card"),
        *xids(149, 149, bus_id="0009:01:00"),
        *xids(149, bus_id="0008:01:00"),
        *xids(154, bus_id="0018:01:00", recovery=1),
        *xids(154, bus_id="0008:01:00", recovery=1),
    ],
    "xid154-label-variants.log": [
        (kind, {**fields, "recovery": number})
        for (kind, fields), number in zip(xids(*[154] * 6), (1, 1, 2, 2, 4, 1), strict=True)
    ],
    "xid171-48-63-154-dram-chain.log": [
        *xids(171, 48, 63, bus_id="0000:55:00"),
        *xids(154, action="drain_and_reset"),
    ],
    "xid31-62-45-chain.log": xids(31, 62, 45, 45, 45, 45, 45),
    "xid31-hubclient-4090.log": [*xids(31, pid=14292), *xids(31, pid=14566)],
    "xid43-31-94-h100-node-days.log": [
        *xids(43, 43, bus_id="0000:00:05"),
        *xids(31, bus_id="0000:00:07"),
        *xids(94, bus_id="0000:00:08"),
    ],
    "xid45-caused-by-previous-149-145.log": [
        (kind, {**fields, "previous_xid": previous})
        for (kind, fields), previous in zip(xids(*[45] * 5), (149, 145, 145, 145, 149), strict=True)
    ],
    "xid45-flood-then-hung-task-nvidia-smi-D.log": [
        *xids(*[45] * 6),
        ("context", {"what": "hung_task", "pid": 620917}),
    ],
    "xid48-64-with-rminit-loop.log": [
        ("driver_fault", {"error": "init_failed", "bus_id": "0000:0a:00"}),
        ("driver_fault", {"error": "init_failed", "bus_id": "0000:0a:00"}),
        *xids(48, 64, bus_id="0000:07:00"),
    ],
    "xid63-row-remapper.log": xids(63, 63, bus_id="0000:10:1c"),
    "xid79-crash-dump-d3-aer.log": [
        *xids(79, bus_id="0000:09:00"),
        ("pcie_error", {"error": "corrected"}),
    ],
    "xid79-then-sxid20034-h100.log": [
        *xids(79, bus_id="0000:91:00"),
        *[
            ("nvswitch_fault", {"sxid": 20034, "switch": switch, "link": link, "fatal": True})
            for switch, link in ((1, 48), (0, 63), (2, 37), (0, 62))
        ],
    ],
}


def check(path: Path, expected: Expected, source: str | None = None) -> int:
    """Compare a file's records with the expected ones; return how many values were compared."""
    records = classify(path, source)
    assert [record.kind for record in records] == [kind for kind, _ in expected]
    values = 0
    for record, (_, fields) in zip(records, expected, strict=True):
        told = {"severity": record.severity, **record.fields}
        assert {name: told.get(name) for name in fields} == fields
        values += 1 + len(fields)
    return values


@pytest.mark.parametrize(("name", "expected"), sorted(VLLM.items()))
def test_a_captured_server_log_gives_its_records(name: str, expected: Expected) -> None:
    source = "kernel" if "kernel_xid" in name else "vllm"

    assert check(DATA / "vllm" / name, expected, source) >= 0
    assert check(DATA / "vllm" / name, expected, None) >= 0


@pytest.mark.parametrize(("name", "expected"), sorted(REAL.items()))
def test_the_log_of_a_server_that_really_ran_gives_its_records(
    name: str, expected: Expected
) -> None:
    source = "kernel" if name.endswith("dmesg.txt") else "vllm"

    assert check(DATA / "vllm/real-cpu" / name, expected, source) >= 0


@pytest.mark.parametrize(("name", "expected"), sorted(NPU.items()))
def test_a_captured_log_of_an_ascend_node_gives_its_records(name: str, expected: Expected) -> None:
    assert check(DATA / "npu-smi/logs" / name, expected) >= 0


def test_each_line_of_the_nvlink_units_is_a_record() -> None:
    path = DATA / "nvidia-smi/kmsg/xid144-150-subcodes-synthetic.log"
    records = classify(path, "kernel")

    told = [(r.kind, r.fields["xid"], r.fields["fatal"]) for r in records]
    lines = [line.split() for line in path.read_text().splitlines()]
    assert told == [("nvlink_fault", int(w[3].strip(",")), w[5] == "Fatal") for w in lines]
    assert len(told) == 35


@pytest.mark.parametrize(("name", "expected"), sorted(KMSG.items()))
def test_a_captured_kernel_log_gives_its_records(name: str, expected: Expected) -> None:
    assert check(DATA / "nvidia-smi/kmsg" / name, expected, "kernel") >= 0
    assert check(DATA / "nvidia-smi/kmsg" / name, expected, None) >= 0


def test_a_line_cut_by_rotation_is_one_event() -> None:
    reader = Classifier("vllm")
    folder = DATA / "vllm/logs/derived_rotation"
    records = reader.feed((folder / "serve.log.1").read_bytes())
    records += reader.feed((folder / "serve.log").read_bytes()) + reader.finish()

    died = [r.fields["name"] for r in records if r.kind == "engine_proc_died"]
    assert died == ["EngineCore_DP0"]


TABLE = "logs/npu_smi_during_hang.txt"
NOT_CAPTURES = {
    "txt": "notes of what was seen: routes, process trees, endpoints",
    "tsv": "what clients, polls and the supervisor of a run saw",
    "json": "what clients and the supervisor of a run saw",
}
"""Rows of the real server's index that no command reads, by how their names end."""


def in_pieces(data: bytes, size: int) -> list[LogRecord]:
    """The records of a log that is handed in piece by piece, as a backlog is."""
    reader, records, place = Classifier(None), [], 0
    while place < len(data):
        stop = data.find(b"\n", min(place + size, len(data) - 1)) + 1 or len(data)
        records += reader.feed(data[place:stop], more=True)
        place = stop
    return sorted(records + reader.finish(), key=lambda record: record.line)


def test_records_do_not_depend_on_where_a_log_is_cut_into_pieces() -> None:
    names = [f"vllm/{name}" for name in VLLM] + [f"vllm/real-cpu/{name}" for name in REAL]
    names += [f"npu-smi/logs/{name}" for name in NPU]
    different = []
    for name in names:
        data = (DATA / name).read_bytes().rstrip(b"\n") + b"\n"
        whole = whole_log(data)
        different += [(name, size) for size in (100, 997) if in_pieces(data, size) != whole]

    assert different == []


def test_no_row_of_an_index_is_passed_over() -> None:
    missing = []
    for index, prefix, known in (
        ("vllm/INDEX.tsv", "logs/", set(VLLM)),
        ("vllm/real-cpu/INDEX.tsv", "", set(REAL)),
        ("npu-smi/INDEX.tsv", "logs/", {f"logs/{name}" for name in NPU}),
        ("nvidia-smi/INDEX.tsv", "kmsg/", {f"kmsg/{name}" for name in KMSG} | {SUBCODES}),
    ):
        rows = csv.DictReader((DATA / index).read_text().splitlines(), delimiter="\t")
        for row in rows:
            name = row["file"]
            log = name.startswith(prefix) and name.endswith((".log", "dmesg.txt"))
            if log and name not in known and "derived_rotation" not in name:
                missing.append(name)

    assert missing == []


def test_every_row_of_vllms_indexes_is_read_by_a_command_or_has_a_reason() -> None:
    read = {f"vllm/{name}" for name in {*VLLM, TABLE, "logs/derived_rotation/serve.log"}}
    read |= {"vllm/logs/derived_rotation/serve.log.1", f"vllm/metrics/{EMPTY}"}
    read |= {f"vllm/metrics/{name}" for name in PAGES}
    read |= {f"vllm/real-cpu/{name}" for name in (*REAL, *(name for name, _ in real_pages()))}
    left = []
    for folder in ("vllm", "vllm/real-cpu"):
        index = (DATA / folder / "INDEX.tsv").read_text().splitlines()
        for row in csv.DictReader(index, delimiter="\t"):
            name = f"{folder}/{row['file']}"
            told = folder == "vllm/real-cpu" and name.rpartition(".")[2] in NOT_CAPTURES
            if name not in read and not told:
                left.append(name)

    assert left == []


EMPTY = "v0_0.5.4_helptype_only_no_samples.prom"
PAGES: dict[str, dict[str, float]] = {
    "v0_0.5.4_only_process_metrics.prom": {"process_virtual_memory_bytes": 103229071360.0},
    "v0_0.5_cpu_full.prom": {
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 0.0,
        "vllm:num_requests_swapped": 0.0,
        "vllm:gpu_cache_usage_perc": 0.0,
        "vllm:num_preemptions_total": 0.0,
        "vllm:request_success_total": 1.0,
        "process_start_time_seconds": 1718140558.3,
    },
    "v1_0.10.0_rename_both_names.prom": {
        "vllm:kv_cache_usage_perc": 9.75010481363281e-06,
        "vllm:prefix_cache_queries_total": 32.0,
    },
    "v1_0.8_no_engine_label.prom": {
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 0.0,
        "vllm:gpu_cache_usage_perc": 0.0,
        "process_start_time_seconds": 1742624005.57,
        "process_open_fds": 45.0,
    },
    "v1_http_instrumentator.prom": {"http_requests_total": 201.0},
    "v1_recent_names_partial.prom": {
        "vllm:kv_cache_usage_perc": 0.0,
        "vllm:iteration_tokens_total_count": 71.0,
    },
    "v1_recent_waiting_by_reason.prom": {
        "vllm:num_requests_running": 24.0,
        "vllm:num_requests_waiting": 72.0,
        "vllm:kv_cache_usage_perc": 0.0,
    },
}


def sums(found: list[Sample | Event]) -> dict[str, float]:
    total: dict[str, float] = {}
    for item in found:
        if isinstance(item, Sample):
            total[item.name] = total.get(item.name, 0.0) + item.value
    return total


@pytest.mark.parametrize(("name", "expected"), sorted(PAGES.items()))
def test_a_captured_metrics_page_gives_its_values(name: str, expected: dict[str, float]) -> None:
    total = sums(collect("vllm_metrics", DATA / "vllm/metrics" / name))

    assert {key: total.get(key) for key in expected} == expected
    assert not [key for key in total if key.endswith("_created")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (EMPTY, "metrics_not_reporting"),
        ("v0_0.5.4_only_process_metrics.prom", "metrics_missing_engine_series"),
    ],
)
def test_a_page_without_the_engine_says_so(name: str, kind: str) -> None:
    found = collect("vllm_metrics", DATA / "vllm/metrics" / name)

    assert [x.kind for x in found if isinstance(x, Event)] == [kind]


def real_pages() -> list[tuple[str, dict[str, float]]]:
    index = DATA / "vllm/real-cpu/INDEX.tsv"
    if not index.is_file():
        return []
    rows = []
    for row in csv.DictReader(index.read_text().splitlines(), delimiter="\t"):
        if row["file"].endswith(".prom"):
            words = [word for word in row["expected"].split() if "=" in word and "{" not in word]
            pairs = (word.split("=") for word in words if not word.startswith("awake"))
            rows.append((row["file"], {f"vllm:{key}": float(value) for key, value in pairs}))
    return rows


@pytest.mark.parametrize(("name", "expected"), real_pages())
def test_a_page_of_a_server_that_really_ran_gives_its_values(
    name: str, expected: dict[str, float]
) -> None:
    total = sums(collect("vllm_metrics", DATA / "vllm/real-cpu" / name))

    assert len(expected) >= 5
    assert {key: total.get(key) for key in expected} == expected


def test_a_table_taken_during_a_hang_looks_well() -> None:
    found = collect("npu_smi", DATA / "vllm" / TABLE)

    def values(name: str) -> dict[str, float]:
        own = [item for item in found if isinstance(item, Sample) and item.name == name]
        return {dict(sample.labels)["card"]: sample.value for sample in own}

    dies = ["0000:9d:00", "0000:9f:00"]
    assert values("accelerator_healthy") == dict.fromkeys(dies, 1.0)
    assert values("accelerator_utilization_ratio") == dict.fromkeys(dies, 0.0)
    assert values("accelerator_power_watts") == {dies[0]: 162.5}
    used = values("accelerator_memory_used_bytes")
    assert used == {dies[0]: 62768 * 1048576.0, dies[1]: 61757 * 1048576.0}
    assert values("accelerator_memory_total_bytes") == dict.fromkeys(dies, 65536 * 1048576.0)


def test_access_lines_are_counted_without_the_probes_of_others() -> None:
    found = collect("vllm_log", DATA / "vllm/logs/access_mixed_health_metrics.log")

    # The row speaks of two requests; the file holds three, beside nine probes.
    counted = [item for item in found if isinstance(item, Sample)]
    assert counted == [Sample("log_requests_total", 3.0, (("status", "2xx"),))]
