"""Windows of time by cron."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from vllm_watchdog.watchdog.config import Schedule
from vllm_watchdog.watchdog.model import Page, labelset
from vllm_watchdog.watchdog.schedules import Schedules

NIGHT = Schedules(
    {"night": Schedule.model_validate({"cron": "0 1 * * *", "lasts": "5h"})}, timezone.utc
)


@pytest.mark.parametrize(
    ("moment", "active"),
    [
        ((0, 59, 59), False),
        ((1, 0, 0), True),
        ((5, 59, 59), True),
        ((6, 0, 0), False),
        ((12, 0, 0), False),
    ],
)
def test_a_schedule_is_active_from_its_start_until_it_has_lasted(
    moment: tuple[int, int, int], active: bool
) -> None:
    at = datetime(2026, 1, 2, *moment, tzinfo=timezone.utc).timestamp()

    assert NIGHT.page(at) == Page(
        (labelset({"name": "night"}, "schedule_active"),), (float(active),)
    )
