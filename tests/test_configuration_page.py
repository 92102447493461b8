"""The page of the configuration says every key, and nothing that is not so."""

from __future__ import annotations

from pathlib import Path

from vllm_watchdog.watchdog.config.models import Config
from vllm_watchdog.watchdog.config.reference import page, rows

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"


def test_the_page_is_what_the_models_say() -> None:
    assert PAGE.read_text() == page(), "write it anew: make docs"


def test_every_key_has_a_meaning() -> None:
    assert [key for key, _, _, meaning in rows(Config, "") if not meaning] == []


def test_keys_of_lists_and_names_are_told_apart() -> None:
    keys = {key for key, _, _, _ in rows(Config, "")}

    assert {"`services.NAME.probe.kind`", "`policies[].when`", "`guard.node`"} <= keys


def test_durations_are_told_with_their_unit_and_bounds() -> None:
    told = {key: (form, default) for key, form, default, _ in rows(Config, "")}

    assert told["`interval`"] == ("duration, 100ms to 1d", "`5s`")
    assert told["`guard.cooldown`"] == ("duration", "`120s`")
    assert [key for key, (form, _) in told.items() if form == "number"] == [
        "`services.NAME.targets.tokens_per_second`"
    ]
