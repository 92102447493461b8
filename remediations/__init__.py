"""Remediations: one file an act, each a plan of steps; adapters speak to managers and fronts.

The list is kept by hand; importing it starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..watchdog.acting import Remediation
from .cache_only import CacheOnly
from .card_failover import CardFailover
from .defragment import Defragment
from .drain import Drain
from .lower_frequency import LowerFrequency
from .page import PagePerson
from .quantize import Quantize
from .reset_card import ResetCard
from .restart import Restart
from .shed_load import ShedLoad

REMEDIATIONS: Mapping[str, Remediation] = {
    each.name: each
    for each in (
        Restart(),
        CardFailover(),
        Quantize(),
        Defragment(),
        Drain(),
        ResetCard(),
        CacheOnly(),
        ShedLoad(),
        LowerFrequency(),
        PagePerson(),
    )
}
"""Every act by its name."""
