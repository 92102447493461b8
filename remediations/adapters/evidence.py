"""What was so before a kill: a bundle of small files in the state folder, taken within 10 s.

Every part has a limit of its own and is given up alone; what came in time is kept, and the
manifest says what did not. It changes nothing of the service and never keeps an act from going on.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ...watchdog.acting import ActCase, Done, Step
from ...watchdog.errors import SourceError
from ...watchdog.system import Files, System
from .evidence_parts import PARTS
from .evidence_scene import Part, Scene, scene_of
from .instances import Instance

LIMIT = 8.5  # seconds for all parts together; the step has ten
DEADLINE = 10.0
MAX_BUNDLE = 8 * 1024 * 1024  # bytes
MANIFEST = "manifest.json"
_TURN = 0.02  # seconds between two looks at the parts

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def evidence_step(case: ActCase, instance: Instance) -> Step:
    """The step that takes a bundle of the instance; the act goes on without it."""
    return Step(
        "evidence",
        DEADLINE,
        partial(_taken, case=case),
        partial(_take, case=case, instance=instance),
        must=False,
        gives={"evidence": str(folder(case.state, case.request.id))},
    )


def folder(state: Path, request: str) -> Path:
    """Where the bundle of a request lies."""
    plain = _PLAIN.fullmatch(request)
    name = request if plain else hashlib.sha256(request.encode("utf-8", "replace")).hexdigest()
    return state / "evidence" / name


def _taken(system: System, *, case: ActCase) -> Done:
    there = system.files.exists(folder(case.state, case.request.id) / MANIFEST)
    return "yes" if there else "no"


def _take(system: System, *, case: ActCase, instance: Instance) -> None:
    gather(system, scene_of(case, instance), folder(case.state, case.request.id))


@dataclass
class _Run:
    """One part under way: its result, or why there is none."""

    part: Part
    data: bytes | None = None
    error: str = ""
    seconds: float = 0.0
    thread: threading.Thread | None = field(default=None, repr=False)


def gather(
    system: System,
    scene: Scene,
    into: Path,
    parts: Sequence[Part] = PARTS,
    limit: float = LIMIT,
) -> Mapping[str, str]:
    """Take all parts at once and write what came within ``limit`` seconds, then the manifest.

    Returns why each part is missing that is. Raises OSError or SourceError where the folder cannot
    be had; a part that fails or hangs raises nothing.
    """
    begun = system.clock.mono()
    make_private(system.files, into)
    runs = [_Run(part) for part in parts]
    for run in runs:
        run.thread = threading.Thread(
            target=_work, args=(run, system, scene), name=f"evidence-{run.part.name}", daemon=True
        )
        run.thread.start()
    _wait(system, runs, limit)
    return _keep(system, scene, into, runs, begun)


def _wait(system: System, runs: Sequence[_Run], limit: float) -> None:
    """Wait for each part as long as its own limit lets, and for all no longer than ``limit``.

    Waits are counted too: a thread that hangs in the kernel heeds no clock of a test.
    """
    begun, turns = system.clock.mono(), 0
    pause = threading.Event()
    while pending := [run for run in runs if run.thread and run.thread.is_alive()]:
        waited = max(system.clock.mono() - begun, turns * _TURN)
        if waited >= min(limit, max(run.part.limit for run in pending)):
            return
        pause.wait(_TURN)
        turns += 1


def _work(run: _Run, system: System, scene: Scene) -> None:
    begun = system.clock.mono()
    try:
        data = run.part.take(system, scene)
    except Exception as error:  # noqa: BLE001 - a boundary: one part must not spoil the others
        run.error = " ".join(str(error).split())[:200] or type(error).__name__
    else:
        run.data = data.encode("utf-8", "replace") if isinstance(data, str) else data
    run.seconds = system.clock.mono() - begun


def _keep(
    system: System, scene: Scene, into: Path, runs: Sequence[_Run], begun: float
) -> Mapping[str, str]:
    left = MAX_BUNDLE
    kept: list[dict[str, object]] = []
    given_up: dict[str, str] = {}
    for run in runs:
        data, error = run.data, run.error
        if data is None:
            given_up[run.part.name] = error or f"it took more than {run.part.limit:g} s"
            continue
        room = min(left, run.part.size)
        cut = len(data) > room
        data = data[-room:] if run.part.tail else data[:room]
        name = f"{run.part.name}.txt"
        system.files.write(into / name, data, 0o600)
        left -= len(data)
        seconds = round(run.seconds, 3)
        kept.append({"file": name, "bytes": len(data), "cut": cut, "seconds": seconds})
    now = system.clock
    manifest = {
        "request": scene.request,
        "act": scene.act,
        "service": scene.service,
        "instance": scene.instance.unit_name,
        "taken": now.wall(),
        "seconds": round(now.mono() - begun, 3),
        "files": kept,
        "given_up": given_up,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
    system.files.write(into / MANIFEST, text.encode("utf-8", "replace"), 0o600)
    return given_up


def make_private(files: Files, into: Path) -> None:
    """Make the folder and the one above it, ours alone. Raises SourceError where one of them is a
    link or no folder: somebody else put it there."""
    for path in (into.parent, into):
        real = files.path(path)
        if real.is_symlink() or (real.exists() and not real.is_dir()):
            raise SourceError(f"{path} is no folder of ours")
        files.make_folder(path, 0o700)
        real.chmod(0o700)
