#!/usr/bin/python3
"""An ``nvidia-smi`` that shows the cards of a folder, and who of the living processes holds them.

``cards.json``: address -> {uuid, load} and marks: ``lost``; ``busy``: its load shows though nobody
holds it; ``sick``: it asks for a reset; ``persistent``: as ``-pm`` sets it; ``clocks``: as ``-lgc``
sets them (``210,990``). ``holders/CARD/PID``: a process that took the card's memory; ``hang``: every
call hangs until it is gone; ``calls.log``: the calls. A program of its own: standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

HEAD = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
\t<timestamp>Mon Feb  2 03:04:05 2026</timestamp>
\t<driver_version>580.11.22</driver_version>
\t<cuda_version>13.0</cuda_version>
\t<attached_gpus>{count}</attached_gpus>
"""
CARD = """\t<gpu id="0000{card}.0">
\t\t<product_name>NVIDIA Test 80GB</product_name>
\t\t<uuid>{uuid}</uuid>
\t\t<minor_number>{number}</minor_number>
\t\t<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
\t\t<gpu_recovery_action>None</gpu_recovery_action>
\t\t<pci><pci_bus_id>0000{card}.0</pci_bus_id></pci>
\t\t<performance_state>P0</performance_state>
\t\t<clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle></clocks_event_reasons>
\t\t<fb_memory_usage><total>81559 MiB</total><reserved>500 MiB</reserved><used>{used} MiB</used><free>{free} MiB</free></fb_memory_usage>
\t\t<utilization><gpu_util>{load} %</gpu_util><memory_util>10 %</memory_util></utilization>
\t\t<ecc_errors><volatile>
\t\t\t<sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
\t\t\t<dram_correctable>0</dram_correctable><dram_uncorrectable>0</dram_uncorrectable>
\t\t</volatile></ecc_errors>
\t\t<temperature><gpu_temp>45 C</gpu_temp></temperature>
\t\t<gpu_power_readings><power_state>P0</power_state><average_power_draw>150.00 W</average_power_draw></gpu_power_readings>
\t\t<clocks><graphics_clock>1980 MHz</graphics_clock><sm_clock>1980 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks>
\t\t<processes>{processes}</processes>
\t</gpu>
"""
CLOCKS = range(1980, 209, -15)  # MHz
REFUSED = 255  # exit status
PROCESS = """
\t\t\t<process_info><pid>{pid}</pid><type>C</type><process_name>VLLM::EngineCore</process_name><used_memory>70000 MiB</used_memory></process_info>"""


def holders(card: str) -> list[int]:
    """The living processes that hold a card."""
    folder = FOLDER / "holders" / card
    found = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            state = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            state = "Z"
        if state == "Z":
            with contextlib.suppress(OSError):
                entry.unlink(missing_ok=True)
        else:
            found.append(int(entry.name))
    return found


def query(cards: dict[str, dict[str, object]]) -> str:
    """``nvidia-smi -q -x``."""
    parts = []
    for number, (card, about) in enumerate(cards.items()):
        if about.get("lost"):
            continue
        pids = holders(card)
        used = 500 + 70000 * bool(pids)
        text = CARD.format(
            card=card, uuid=about["uuid"], number=number,
            load=about.get("load", 50) if pids or about.get("busy") else 0,
            used=used, free=81059 - used,
            processes="".join(PROCESS.format(pid=pid) for pid in pids),
        )  # fmt: skip
        parts.append(marked(text, about))
    return HEAD.format(count=len(parts)) + "".join(parts) + "</nvidia_smi_log>\n"


def marked(text: str, about: dict[str, object]) -> str:
    """A card's part of the answer with what its marks say."""
    if "persistent" in about:
        mode = "Enabled" if about["persistent"] else "Disabled"
        told = f"<persistence_mode>{mode}</persistence_mode>"
        text = text.replace("<minor_number>", f"{told}\n\t\t<minor_number>")
    if about.get("sick"):
        text = text.replace("_action>None<", "_action>GPU Reset<")
    if about.get("clocks"):
        high = str(about["clocks"]).partition(",")[2]
        text = re.sub(r"(<(?:graphics|sm)_clock>)\d+", rf"\g<1>{high}", text)
    return text


def topology(count: int) -> str:
    """``nvidia-smi topo -m`` of cards without a link."""
    names = [f"GPU{number}" for number in range(count)]
    lines = ["\t".join(["", *names, "CPU Affinity"])]
    for row in names:
        cells = ["X" if row == name else "SYS" for name in names]
        lines.append("\t".join([row, *cells, "0-15"]))
    return "\n".join(lines) + "\n"


def keep(cards: dict[str, dict[str, object]]) -> None:
    """The cards as they are from now on."""
    aside = FOLDER / f"cards.json.{os.getpid()}"
    aside.write_text(json.dumps(cards))
    aside.replace(FOLDER / "cards.json")


def reset(cards: dict[str, dict[str, object]], named: list[str]) -> int:
    """``nvidia-smi --gpu-reset -i CARDS``: refused while somebody is on one, or in persistence mode."""
    busy = [card for card in named if holders(card) or cards[card].get("persistent")]
    if busy:
        print("The following GPUs could not be reset:")
        for card in busy:
            print(f"  GPU 0000{card}.0: In use by another client")
        return REFUSED
    for card in named:
        for mark in ("sick", "clocks"):
            cards[card].pop(mark, None)
        print(f"GPU 0000{card}.0 was successfully reset.")
    keep(cards)
    return 0


def change(cards: dict[str, dict[str, object]], named: list[str], words: list[str]) -> int:
    """``-pm``, ``-lgc``, ``-rgc``."""
    for card in named:
        if "-pm" in words:
            cards[card]["persistent"] = words[words.index("-pm") + 1] == "1"
        elif "-lgc" in words:
            cards[card]["clocks"] = words[words.index("-lgc") + 1]
        else:
            cards[card].pop("clocks", None)
    keep(cards)
    print("All done.")
    return 0


def log(words: list[str]) -> None:
    """Note a call, whoever makes it."""
    path = FOLDER / "calls.log"
    with contextlib.suppress(OSError), path.open("a") as told:
        told.write(f"{time.time():.3f} {' '.join(words)}\n")
        path.chmod(0o666)


def main() -> int:
    while (FOLDER / "hang").exists():
        time.sleep(0.1)
    cards = json.loads((FOLDER / "cards.json").read_text())
    words = sys.argv[1:]
    log(words)
    wanted = words[words.index("-i") + 1].split(",") if "-i" in words else []
    named = [
        card
        for card, about in cards.items()
        if not about.get("lost") and {card, f"{card}.0", f"0000{card}.0", about["uuid"]} & {*wanted}
    ]
    if wanted and len(named) != len(wanted):
        print("No devices were found")
        return 6
    if "--gpu-reset" in words or "-r" in words:
        return reset(cards, named)
    if {"-pm", "-lgc", "-rgc"} & {*words}:
        return change(cards, named, words)
    if "--query-supported-clocks=graphics" in words:
        print(*CLOCKS, sep="\n")
    elif words[:2] == ["topo", "-m"]:
        sys.stdout.write(topology(len(cards)))
    else:
        shown = {card: cards[card] for card in named} if named else cards
        sys.stdout.write(query(shown))
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    raise SystemExit(main())
