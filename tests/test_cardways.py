"""The spares that lie nearest come first; where nothing is told the given order stands."""

from __future__ import annotations

from vllm_watchdog.watchdog.cardways import nearest, rank


def test_the_spare_with_the_shortest_way_comes_first() -> None:
    ways = {("kept", "far"): "SYS", ("kept", "near"): "PIX"}

    assert nearest(["far", "near"], ["kept"], ways, 1) == ("near",)


def test_a_way_counts_in_either_direction() -> None:
    ways = {("far", "kept"): "SYS", ("near", "kept"): "HCCS"}

    assert nearest(["far", "near"], ["kept"], ways, 1) == ("near",)


def test_many_links_are_nearer_than_few_and_both_than_a_bridge() -> None:
    assert rank("NV18") < rank("NV4") < rank("SIO") < rank("PIX") < rank("SYS") < rank("???")


def test_spares_that_are_joined_go_together() -> None:
    ways = {("a", "b"): "SYS", ("a", "c"): "SYS", ("b", "c"): "NV4"}

    assert nearest(["a", "b", "c"], [], ways, 2) == ("b", "c")


def test_without_words_the_given_order_stands() -> None:
    assert nearest(["b", "a", "c"], ["kept"], {}, 2) == ("b", "a")


def test_there_are_no_more_than_there_are() -> None:
    assert nearest(["a"], ["kept"], {}, 4) == ("a",)
