"""Windows of time by cron: whether a configured schedule is active at a moment. No timers here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from .config import Schedule
from .model import Page, labelset

if TYPE_CHECKING:
    from datetime import tzinfo


class Schedules:
    """The configured schedules. Cron times are local ones of ``zone`` (None: the machine's)."""

    def __init__(self, schedules: Mapping[str, Schedule], zone: tzinfo | None = None) -> None:
        self._lasts = {name: schedule.lasts for name, schedule in schedules.items()}
        self._zone = zone
        self._triggers = {name: _trigger(s.cron, zone) for name, s in schedules.items()}
        self._keys = tuple(labelset({"name": name}, "schedule_active") for name in schedules)

    def page(self, wall: float) -> Page:
        """``schedule_active{name}`` 1 or 0 for each schedule at Unix time ``wall``."""
        return Page(self._keys, tuple(float(self.active(name, wall)) for name in self._lasts))

    def active(self, name: str, wall: float) -> bool:
        """Whether a schedule that began at or before ``wall`` still lasts."""
        now = datetime.fromtimestamp(wall).astimezone(self._zone)
        earliest = now - timedelta(seconds=self._lasts[name])
        start = self._triggers[name].get_next_fire_time(None, earliest + timedelta(microseconds=1))
        return start is not None and start <= now


def _trigger(cron: str, zone: tzinfo | None) -> Any:
    from apscheduler.triggers.cron import CronTrigger

    return CronTrigger.from_crontab(cron, timezone=zone)
