"""How GPUs are joined (``topo -m``, ``topo -p2p``, ``nvlink -s``) and who they are (``-L``).

These outputs number the GPUs and print no address; a card is ``gpu0`` here unless ``cards`` (uuid
or index -> card name) says which one it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..model import Sample
from .card import VENDOR, labels_of

MAX_LINES = 20_000

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU ([0-9]+): (.*?) \(UUID: (\S+?)\)\s*\Z")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+([0-9]+): \(UUID: (MIG-\S+?)\)\s*\Z")
_LINK = re.compile(
    r"\s*Link ([0-9]+): (?:([0-9]{1,6}(?:\.[0-9]{1,6})?) GB/s|<?(inactive)>?)\s*\Z", re.IGNORECASE
)
_LINK_ERRORS = re.compile(r"\s*Link ([0-9]+): (\S+(?: \S+)?) Errors?: ([0-9]{1,18})\s*\Z")
GPU_LINE = re.compile(_GPU.pattern.replace(r"\Z", "$"), re.MULTILINE)
_ALL_DOWN = re.compile(r"all links are inactive", re.IGNORECASE)
_INSTANCE = re.compile(r"\| +([0-9]+) +MIG (\S+) +([0-9]+) +([0-9]+) +([0-9]+:[0-9]+) +\|\s*\Z")
_PEER_WORDS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U", "X"})
_LINK_WORD = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|NV[0-9]+|SOC|N/A)\Z")
_NIC = re.compile(r"\s+(NIC[0-9]+): (\S+)\s*\Z")

Cards = Mapping[str, str]


def _lines(text: str) -> list[str]:
    return _ANSI.sub("", text).splitlines()[:MAX_LINES]


def _place(index: str, uuid: str, cards: Cards) -> str:
    return cards.get(uuid) or cards.get(index) or f"gpu{index}"


def listing(text: str, cards: Cards | None = None) -> Iterator[Sample]:
    """``-L``: who the GPUs and their MIG instances are."""
    home = ""
    for line in _lines(text):
        gpu, mig = _GPU.match(line), _MIG.match(line)
        if gpu:
            home = _place(gpu[1], gpu[3], cards or {})
            yield from _listed(home, gpu)
        elif mig and home:
            more = (("parent", home), ("profile", mig[1]), ("index", mig[2]), ("uuid", mig[3]))
            yield Sample("accelerator_info", 1.0, labels_of(mig[3], *more))
            yield Sample("accelerator_present", 1.0, labels_of(mig[3]))


def _listed(home: str, gpu: re.Match[str]) -> Iterator[Sample]:
    who = (("index", gpu[1]), ("model", gpu[2]), ("uuid", gpu[3]))
    yield Sample("accelerator_info", 1.0, labels_of(home, *who))
    yield Sample("accelerator_present", 1.0, labels_of(home))


def mig_uuids(text: str) -> dict[tuple[str, str], str]:
    """From ``-L``: (GPU uuid, index of the MIG device) -> MIG uuid."""
    found, gpu_uuid = {}, ""
    for line in _lines(text):
        gpu, mig = _GPU.match(line), _MIG.match(line)
        if gpu:
            gpu_uuid = gpu[3]
        elif mig:
            found[gpu_uuid, mig[2]] = mig[3]
    return found


def nvlinks(text: str, cards: Cards | None = None) -> Iterator[Sample]:
    """``nvlink -s`` and ``-e``: each link up or down with its speed, and its error counts."""
    home, active, said = "", 0, False
    for line in _lines(text):
        gpu, link, errors = _GPU.match(line), _LINK.match(line), _LINK_ERRORS.match(line)
        if gpu:
            if said:
                yield _count(home, active)
            home, active, said = _place(gpu[1], gpu[3], cards or {}), 0, False
            yield from _listed(home, gpu)
        elif link and home:
            said, active = True, active + (0 if link[3] else 1)
            yield from _link(home, link)
        elif errors and home:
            kind = (("link", errors[1]), ("kind", errors[2].lower().replace(" ", "_")))
            yield Sample("accelerator_link_errors_total", float(errors[3]), labels_of(home, *kind))
        elif _ALL_DOWN.search(line):
            said = True
    if said:
        yield _count(home, active)


def _count(home: str, active: int) -> Sample:
    labels = labels_of(home) if home else (("vendor", VENDOR),)
    return Sample("accelerator_links_active", float(active), labels)


def _link(home: str, link: re.Match[str]) -> Iterator[Sample]:
    labels = labels_of(home, ("link", link[1]))
    yield Sample("accelerator_link_up", 0.0 if link[3] else 1.0, labels)
    if link[2]:
        speed = float(link[2]) * 1e9
        yield Sample("accelerator_link_bandwidth_bytes_per_second", speed, labels)


def is_matrix(text: str) -> bool:
    """Whether a text is a table with one column a GPU (``topo``)."""
    return bool(_matrix(_lines(text))[0])


def matrix(text: str, cards: Cards | None = None) -> Iterator[Sample]:
    """``topo -m`` (the way between two devices, NUMA node, CPUs) or ``topo -p2p``."""
    lines = _lines(text)
    peers, rows = _matrix(lines)
    nics = {match[1]: match[2] for match in map(_NIC.match, lines) if match}
    names = {
        peer: _place(peer[3:], "", cards or {}) if peer.startswith("GPU") else nics.get(peer, peer)
        for peer in peers
    }
    words = {word for row in rows.values() for word in row[: len(peers)]} - {"X"}
    metric, label = ("accelerator_topology", "path")
    if words and words <= _PEER_WORDS:
        metric, label = ("accelerator_peer_access", "status")
    for name, row in rows.items():
        if not name.startswith("GPU") or len(row) < len(peers):
            continue
        home = names.get(name) or _place(name[3:], "", cards or {})
        for peer, word in zip(peers, row, strict=False):
            if word != "X" and (_LINK_WORD.match(word) or word in _PEER_WORDS):
                more = (("peer", names[peer]), (label, word))
                yield Sample(metric, 1.0, labels_of(home, *more))
        yield from _affinity(home, row[len(peers) :])


def _matrix(lines: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Device columns of the header, and each row's cells by its name."""
    for at, line in enumerate(lines):
        names = line.split("CPU Affinity")[0].split()
        if names and names[0] == "GPU0":
            rows = dict(_cells(row, len(names)) for row in lines[at + 1 :] if row.strip())
            return names, {name: row for name, row in rows.items() if name in names}
    return [], {}


def _cells(line: str, count: int) -> tuple[str, list[str]]:
    """Name and cells of a row; tabs keep empty cells, blanks do not."""
    if "\t" in line:
        name, *cells = [part.strip() for part in line.strip(" ").split("\t")]
        return name, cells
    name, *cells = line.split()
    return name, cells if len(cells) >= count else []


def _affinity(home: str, cells: list[str]) -> Iterator[Sample]:
    cpus = cells[0] if cells else ""
    if re.match(r"[0-9]+(?:[-,][0-9]+)*\Z", cpus) and (len(cells) > 1 or "-" in cpus):
        yield Sample("accelerator_cpu_affinity", 1.0, labels_of(home, ("cpus", cpus)))
    node = cells[1] if len(cells) > 1 else ""
    if node.isdecimal():
        yield Sample("accelerator_numa_node", float(node), labels_of(home))


def instances(text: str) -> Iterator[Sample]:
    """``mig -lgi``: the GPU instances of each card."""
    for line in _lines(text):
        match = _INSTANCE.match(line)
        if match:
            gpu, profile, profile_id, gi, placement = match.groups()
            more = (
                ("profile", profile),
                ("profile_id", profile_id),
                ("gi", gi),
                ("placement", placement),
            )
            yield Sample("accelerator_mig_instance_info", 1.0, labels_of(f"gpu{gpu}", *more))
