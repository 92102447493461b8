"""Where the real servers are that `make peers` installs. Finds them; starts nothing.

Servers lie in ``$VLLM_WATCHDOG_PEERS`` (else ``.peers`` in the repository) or on the system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

COMMANDS = {
    "prometheus": "prometheus",
    "promtool": "promtool",
    "promtool-2.42": "promtool-2.42",
    "alertmanager": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "amtool",
}
"""Peers unpacked into the folder's ``bin``: our name -> file. The machine's own are not used: an
older Prometheus on PATH has other semantics."""

ALERTMANAGER_TEMPLATE = Path("/usr/share/prometheus/alertmanager/default.tmpl")
"""Debian's Alertmanager does not start without this file."""

HOMES = {"elasticsearch-8": 17, "elasticsearch-9": 21}
"""Elasticsearch homes in the folder: name -> the oldest JDK that runs it."""


def folder() -> Path:
    """The folder that `make peers` fills."""
    return Path(os.environ.get("VLLM_WATCHDOG_PEERS") or REPOSITORY / ".peers").resolve()


def find(name: str) -> Path | None:
    """The program (or, for ``elasticsearch-8`` and ``-9``, the home folder) of a peer, or None.

    Names: those of COMMANDS and HOMES; any other is a command on PATH or in an sbin folder.
    """
    if name in HOMES:
        home = folder() / name
        runnable = (home / "bin/elasticsearch").exists() and java_home(HOMES[name])
        return home.resolve() if runnable else None
    if name in COMMANDS:
        program = folder() / "bin" / COMMANDS[name]
        if COMMANDS[name] == "prometheus-alertmanager" and not ALERTMANAGER_TEMPLATE.exists():
            return None
        return program if program.exists() else None
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def require(name: str) -> Path:
    """The peer as ``find`` gives it; without it the test skips, and fails where ``CI=true``.

    Only Elasticsearch 9 may skip in CI too, where the machine has no JDK that runs it.
    """
    found = find(name)
    if found is not None:
        return found
    reason = f"{name} is not installed: run `make peers`"
    if name in HOMES and java_home(HOMES[name]) is None:
        reason = f"{name} needs a JDK >= {HOMES[name]} under /usr/lib/jvm; then run `make peers`"
        if name == "elasticsearch-9":
            pytest.skip(reason)
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def library(name: str) -> Path:
    """A JavaScript library's folder; without it the test skips, and fails where ``CI=true``."""
    found = folder() / "node_modules" / name
    if (found / "package.json").exists():
        return found
    reason = f"{name} is not installed: run `make peers`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def java_home(need: int) -> Path | None:
    """The oldest JDK under /usr/lib/jvm of at least major version ``need``."""
    found = []
    for home in Path("/usr/lib/jvm").glob("*"):
        java = home / "bin/java"
        if home.is_symlink() or not java.exists():
            continue
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "(\d+)', text.stderr)
        if version and int(version[1]) >= need:
            found.append((int(version[1]), home))
    return min(found)[1] if found else None
