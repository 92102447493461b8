"""A scripted ``nvidia-smi``: an executable that plays the answer which the test put in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CARD = """\
	<gpu id="0000{card}.0">
		<product_name>NVIDIA Test 80GB</product_name>
		<uuid>GPU-{number:08d}-aaaa-bbbb-cccc-{number:012d}</uuid>
		<minor_number>{number}</minor_number>
		<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
		<gpu_recovery_action>None</gpu_recovery_action>
		<pci><pci_bus_id>0000{card}.0</pci_bus_id></pci>
		<performance_state>P0</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
		</clocks_event_reasons>
		<fb_memory_usage>
			<total>81559 MiB</total><reserved>500 MiB</reserved>
			<used>{used} MiB</used><free>{free} MiB</free>
		</fb_memory_usage>
		<utilization><gpu_util>{load} %</gpu_util><memory_util>10 %</memory_util></utilization>
		<ecc_errors>
			<volatile>
				<sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
				<dram_correctable>0</dram_correctable><dram_uncorrectable>0</dram_uncorrectable>
			</volatile>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc>
			<remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
		<temperature><gpu_temp>{celsius} C</gpu_temp></temperature>
		<gpu_power_readings>
			<power_state>P0</power_state>
			<average_power_draw>{watts}.00 W</average_power_draw>
			<instant_power_draw>{watts}.00 W</instant_power_draw>
			<current_power_limit>700.00 W</current_power_limit>
		</gpu_power_readings>
		<clocks><graphics_clock>1980 MHz</graphics_clock><sm_clock>1980 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks>
		<processes>
		</processes>
	</gpu>
"""


def answer(loads: dict[str, int], driver: str = "580.11.22", attached: int | None = None) -> str:
    """What ``nvidia-smi -q -x`` says of cards (``0000:53:00``) with these loads in per cent."""
    cards = "".join(
        CARD.format(
            card=card,
            number=number,
            load=load,
            used=1000 + 600 * load,
            free=80059 - 600 * load,
            celsius=40 + load // 4,
            watts=100 + 5 * load,
        )
        for number, (card, load) in enumerate(loads.items())
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
        "<nvidia_smi_log>\n\t<timestamp>Mon Feb  2 03:04:05 2026</timestamp>\n"
        f"\t<driver_version>{driver}</driver_version>\n\t<cuda_version>13.0</cuda_version>\n"
        f"\t<attached_gpus>{len(loads) if attached is None else attached}</attached_gpus>\n"
        f"{cards}</nvidia_smi_log>\n"
    )


@dataclass
class ScriptedGpus:
    """The tool in ``folder`` (put it first on PATH) and the loads that it shows."""

    folder: Path
    loads: dict[str, int] = field(default_factory=dict)

    @classmethod
    def install(cls, folder: Path, cards: Sequence[str], load: int = 50) -> ScriptedGpus:
        """Make the tool; every card has the same load."""
        folder.mkdir(parents=True, exist_ok=True)
        tool = folder / "nvidia-smi"
        tool.write_text('#!/bin/sh\nexec cat "${0%/*}/answer.xml"\n')
        tool.chmod(0o755)
        gpus = cls(folder, dict.fromkeys(cards, load))
        gpus.play()
        return gpus

    def play(self, text: str | None = None) -> None:
        """Show the present loads from now on, or exactly ``text``."""
        aside = self.folder / "answer.new"
        aside.write_text(answer(self.loads) if text is None else text)
        aside.rename(self.folder / "answer.xml")

    def set(self, **loads: int) -> None:
        """``set(c53=90)``: the card whose bus is 53 shows 90 per cent."""
        for bus, load in loads.items():
            self.loads[next(card for card in self.loads if card[5:7] == bus[1:])] = load
        self.play()

    def lose(self, card: str) -> None:
        """The card is no longer in the tool's answer."""
        del self.loads[card]
        self.play()
