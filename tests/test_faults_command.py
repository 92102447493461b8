"""The command `faults`, what follows from kinds and exits, and the page that lists them."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from vllm_watchdog.watchdog.cardfaults import CardFaults
from vllm_watchdog.watchdog.cli.app import app
from vllm_watchdog.watchdog.cli.meanings import explain
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.faults import parse, vocabulary
from vllm_watchdog.watchdog.logs import classify

PAGE = Path(__file__).parents[1] / "docs/faults.md"
TEXTS: dict[str, Any] = yaml.safe_load(
    (resources.files("vllm_watchdog.rules") / "meanings.yaml").read_text()
)


def asked(*words: str) -> dict[str, Any]:
    """The answer of `faults --json`."""
    result = CliRunner().invoke(app, ["faults", "--json", *words])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.output)
    return document


def answer(*words: str) -> dict[str, Any]:
    """Its only fault."""
    (fault,) = asked(*words)["faults"]
    return dict(fault)


# ---- questions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "family", "code"),
    [
        ("79", "xid", "79"),
        ("Xid 79", "xid", "79"),
        ("xid=79", "xid", "79"),
        ("20034", "sxid", "20034"),
        ("SXid 12028", "sxid", "12028"),
        ("0x80e01801", "ascend", "0x80e01801"),
        ("0x80E01801", "ascend", "0x80e01801"),
        ("80E01801", "ascend", "0x80e01801"),
        ("80818200", "ascend", "0x80818200"),
        ("2162169857", "ascend", "0x80e01801"),
        ("507035", "cann", "507035"),
        ("el0004", "cann", "EL0004"),
        ("ERR99999", "cann", "ERR99999"),
        ("oom_device", "kind", "oom_device"),
        ("exit 0", "exit", "0"),
        ("exit code -9", "exit", "-9"),
        ("exit 137", "exit", "-9"),
        ("exit status 139", "exit", "-11"),
        ("E NPU allocation failed on device 3", "exit", "NPU allocation failed"),
    ],
)
def test_a_question_is_understood(question: str, family: str, code: str) -> None:
    fault = answer(question)

    assert (fault["family"], fault["code"], fault["known"]) == (family, code, True)


def test_words_need_no_quotes() -> None:
    assert asked("Xid", "79")["faults"] == asked("Xid 79")["faults"]


def test_a_line_of_a_log_is_explained_by_what_the_line_itself_says() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x1 0x2)"

    fault = answer(line)
    assert (fault["code"], fault["severity"], fault["line"]) == ("149", "critical", line)


def test_a_line_without_a_code_is_explained_by_its_kind() -> None:
    fault = answer("(APIServer pid=4) ERROR 01-02 03:04:05 [a.py:1] EngineDeadError: gone")

    assert (fault["family"], fault["code"], fault["act"]) == ("line", "engine_dead", "restart")


def test_two_faults_in_a_text_are_both_explained() -> None:
    text = "\n".join(
        f"[12.3] NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name=a, words" for code in (48, 63)
    )

    assert [fault["code"] for fault in asked(text)["faults"]] == ["48", "63"]


@pytest.mark.parametrize("question", ["998", "0x12345678", "EI0999", "exit 42"])
def test_an_unknown_code_is_answered_as_not_known(question: str) -> None:
    document = asked(question)

    assert document["known"] is False
    assert [fault["known"] for fault in document["faults"]] == [False]


def test_a_text_that_means_nothing_is_no_error() -> None:
    assert asked("what is this") == {"asked": "what is this", "known": False, "faults": []}


@pytest.mark.parametrize("question", ["", "   "])
def test_an_empty_question_is_bad_usage(question: str) -> None:
    result = CliRunner().invoke(app, ["faults", question])

    assert result.exit_code != 0
    assert isinstance(result.exception, ConfigError)


def test_a_person_reads_meaning_severity_act_and_advice() -> None:
    result = CliRunner().invoke(app, ["faults", "79"])

    lines = result.output.splitlines()
    assert lines[0] == "Xid 79 (NVIDIA): the GPU no longer answers on the bus"
    assert [line.split()[0] for line in lines[1:]] == [
        "kind", "severity", "advised", "daemon", "ends", "source",
    ]  # fmt: skip
    assert "fires CardLost" in result.output


def test_control_characters_of_a_line_do_not_reach_the_terminal() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=\x1b]0;x\x07, words"
    result = CliRunner().invoke(app, ["faults", line])

    assert "\x1b" not in result.output
    assert "\x07" not in result.output


# ---- what follows from a fault -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "act", "alert"),
    [
        ("79", "card_failover", "CardLost"),
        ("48", "card_failover", "CardUncorrectable"),
        ("63", "nothing", None),
        ("94", "card_failover", "CardUncorrectable"),
        ("119", "card_failover", "CardResetRequired"),
        ("13", "nothing", None),
        ("45", "nothing", None),
        ("74", "nothing", None),
        ("0x40f84e00", "card_failover", "CardLost"),
        ("0x80e18400", "nothing", None),
        ("0x8c084e00", "nothing", None),
        ("0x8c03a000", "card_failover", "CardResetRequired"),
        ("507035", "restart", None),
        ("EL0004", "quantize", "MemoryOverflow"),
        ("oom_foreign_process", "page", "MemoryHeldByOther"),
        ("preemption", "nothing", None),
        ("exit 0", "restart", None),
        ("exit -15", "nothing", None),
    ],
)
def test_the_daemons_act_follows_from_the_fault(question: str, act: str, alert: str | None) -> None:
    fault = answer(question)

    assert (fault["act"], fault["alert"]) == (act, alert)


@pytest.mark.parametrize(
    ("question", "recovers"), [("0x8c03a000", True), ("154", True), ("119", False), ("79", False)]
)
def test_only_ascend_events_and_xid_154_tell_their_end(question: str, recovers: bool) -> None:
    assert answer(question)["recovers"] is recovers


def test_a_fault_that_its_vendor_leaves_alone_is_no_critical_series() -> None:
    faults = CardFaults()
    for code in (63, 48):
        line = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name=a, words\n"
        for record in classify(line.encode(), "kernel"):
            faults.note(record, 0.0)

    told = {dict(s.labels)["code"]: dict(s.labels)["severity"] for s in faults.samples(1.0)}
    assert told == {"48": "critical", "63": "warning"}


# ---- the tables ----------------------------------------------------------------------------------


def test_every_kind_exit_and_used_code_has_a_text() -> None:
    words = vocabulary()

    assert set(words.kinds) == set(TEXTS["kinds"])
    assert set(words.exits) == set(TEXTS["exits"])
    assert set(words.tables["cann"]) == set(TEXTS["cann"])
    used = {int(c) for c, f in words.tables["xid"].items() if f.source == "nvidia"}
    unused = {int(c) for c, f in words.tables["xid"].items() if f.action == "support"}
    assert used - unused - set(TEXTS["xid"]) == set()


def test_every_kind_that_a_code_has_is_handled() -> None:
    words = vocabulary()
    kinds = {fault.kind for table in words.tables.values() for fault in table.values()}

    assert kinds - set(words.kinds) == set()


def test_texts_name_only_codes_of_the_vocabulary() -> None:
    words = vocabulary()
    modules = {code[2:6] for code in words.tables["ascend"]}
    failures = {code[6:] for code in words.tables["ascend"]}

    assert {str(code) for code in TEXTS["xid"]} - set(words.tables["xid"]) == set()
    assert {str(code) for code in TEXTS["sxid"]} - set(words.tables["sxid"]) == set()
    assert set(TEXTS["ascend_modules"]) - modules == set()
    assert set(TEXTS["ascend_failures"]) - failures == set()


def test_every_code_is_explained_without_a_gap() -> None:
    words = vocabulary()
    for family, table in words.tables.items():
        for code in table:
            (fault,) = explain(f"{family} {code}" if family in ("xid", "sxid") else code)
            assert (fault.code, fault.known) == (code, True)
            assert fault.meaning
            assert fault.source


@pytest.mark.parametrize(
    "row",
    [
        "kinds: {device_lost: loud card_failover 1 recover a}",
        "kinds: {device_lost: critical dance 1 recover a}",
        "kinds: {device_lost: critical restart often recover a}",
        "kinds: {device_lost: critical restart 1 never a}",
        "kinds: {device_lost: critical restart 1 recover b}",
        "exits: {'0': critical restart 1 recover a}",
    ],
)
def test_a_bad_row_of_kinds_or_exits_is_named(row: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse(f"sources: {{a: text}}\n{row}\n")

    assert "no handling" in str(told.value)


# ---- the page ------------------------------------------------------------------------------------


def rows_of_kinds() -> list[str]:
    return [
        f"| `{kind}` | {h.severity} | {h.act} | {h.counts} | {h.ends} | {TEXTS['kinds'][kind]} |"
        for kind, h in vocabulary().kinds.items()
    ]


def rows_of_exits() -> list[str]:
    return [
        f"| `{code}` | {h.kind} | {h.act} | {TEXTS['exits'][code]} |"
        for code, h in vocabulary().exits.items()
    ]


def rows_of_xids() -> list[str]:
    """The Xids for which the daemon moves a service or which are grave."""
    words = vocabulary()
    return [
        f"| `Xid {code}` | {fault.kind} | {fault.action} | {words.handling(fault).act} "
        f"| {TEXTS['xid'][int(code)]} |"
        for code, fault in words.tables["xid"].items()
        if fault.severity == "critical"
    ]


def test_the_page_lists_kinds_exits_and_grave_xids_as_they_are() -> None:
    page = PAGE.read_text().splitlines()

    assert [line for line in page if re.match(r"\| `", line)] == [
        *rows_of_kinds(), *rows_of_exits(), *rows_of_xids(),
    ]  # fmt: skip
