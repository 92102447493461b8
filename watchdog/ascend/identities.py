"""Who is who: ids, addresses, versions, places in a super pod, paths between cards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..model import Sample, labelset
from .answers import Asked, blocks, pairs
from .cards import VENDOR, Cards, Home, labels_of
from .measures import block_samples
from .words import address, reading


def board(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    told: dict[str, str] = {}
    for key, value in pairs(text):
        told.setdefault(key, "" if value.upper() in {"NA", "-"} else value)
    npu = reading(told.get("npu id", ""), 0, 1e6)
    chip = reading(told.get("chip id", ""), 0, 64)
    ids = home.ids(None if npu is None else int(npu), None if chip is None else int(chip))
    place = told.get("pcie bus info", "").lower()
    card = address(place) or home.card(*ids)
    labels = {
        "bus_id": place if address(place) else "",
        "npu": "" if ids[0] is None else str(ids[0]),
        "chip": told.get("chip id", ""),
        "model": told.get("chip name", ""),
        "driver": told.get("software version", ""),
        "firmware": told.get("firmware version", ""),
        "product": told.get("product name", ""),
        "serial": told.get("serial number", ""),
        "uuid": "-".join((told.get("vdie id") or told.get("ddie id") or "").split()),
    }
    yield Sample("accelerator_info", 1.0, labels_of(card, **labels))
    if told.get("compatibility"):
        fits = told["compatibility"].upper() == "OK"
        yield Sample("accelerator_board_compatible", float(fits), labels_of(card))
    count = reading(told.get("chip count", ""), 0, 64)
    if count is not None:
        yield Sample("accelerator_chips", count, labels_of(card))


def listed(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    for block in blocks("list", text):
        total = reading(block.fields.get("total count", ""), 0, 1e4)
        if total is not None:
            yield Sample("accelerators_listed", total, labelset({"vendor": VENDOR}))
        if block.npu is not None:
            card = home.card(block.npu)
            labels = {
                "npu": str(block.npu),
                "product": block.fields.get("product name", ""),
                "serial": block.fields.get("serial number", ""),
            }
            yield Sample("accelerator_info", 1.0, labels_of(card, **labels))
            yield from block_samples(block, card)


def mapped(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    for row in id_map(text):
        card = home.card(int(row["npu"]), int(row["chip"]))
        yield Sample("accelerator_info", 1.0, labels_of(card, **row))


def id_map(text: str) -> list[dict[str, str]]:
    """The rows of ``npu-smi info -m`` that are chips: npu, chip, model, and as far as told device
    (logic id), phy_id and slot. The board's controller (``Mcu``) is not one."""
    names = {
        "npu id": "npu",
        "chip id": "chip",
        "chip logic id": "device",
        "chip phy-id": "phy_id",
        "slot id": "slot",
        "chip name": "model",
    }
    columns: list[str] = []
    rows: list[dict[str, str]] = []
    for line in text.splitlines():
        words = re.split(r"\s{2,}|\t", line[:2000].strip())
        if words[0] == "NPU ID":
            columns = [names.get(word.lower(), "") for word in words]
        elif columns and len(words) == len(columns) and "model" in columns:
            row = dict(zip(columns, words, strict=True))
            ids = [value for name, value in row.items() if name not in {"model", ""}]
            if row["model"].lower() != "mcu" and all(re.fullmatch(r"\d{1,6}", id_) for id_ in ids):
                rows.append({name: value for name, value in row.items() if name})
    return [row for row in rows if "npu" in row and "chip" in row]


def remapped(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    told = dict(pairs(text))
    ids = {
        "phy_id": told.get("chip phy-id", ""),
        "npu": told.get("npu id", ""),
        "slot": told.get("slot id", ""),
        "chip": told.get("chip id", ""),
        "device": told.get("chip logic id", ""),
    }
    ids = {name: value for name, value in ids.items() if re.fullmatch(r"\d{1,6}", value)}
    if "phy_id" in ids and "npu" in ids:
        card = Home(ask, cards).card(int(ids["npu"]), int(ids.get("chip", "0")))
        yield Sample("accelerator_info", 1.0, labels_of(card, **ids))


def superpod(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    told = dict(pairs(text))
    labels = {
        "sdid": told.get("sdid", ""),
        "superpod": told.get("super pod id", ""),
        "size": told.get("super pod size", ""),
        "server": told.get("server index", ""),
    }
    yield Sample("accelerator_superpod_info", 1.0, labels_of(Home(ask, cards).card(None), **labels))


def topology(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    header: list[int] = []
    for line in text.splitlines():
        words = line[:2000].split()
        npus = [int(found[1]) for word in words if (found := re.fullmatch(r"NPU(\d{1,5})", word))]
        if len(npus) > 1 and not header:
            header = npus
        elif len(npus) == 1 and len(words) > len(header) > 0:
            card = home.card(npus[0])
            for peer, path in zip(header, words[1:], strict=False):
                if path != "X":
                    labels = labels_of(card, peer=home.card(peer), path=path)
                    yield Sample("accelerator_topology", 1.0, labels)
            cpus = words[len(header) + 1 :]
            if cpus:
                yield Sample("accelerator_cpu_affinity", 1.0, labels_of(card, cpus=cpus[0]))
