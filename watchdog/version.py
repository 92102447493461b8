"""Which version of the daemon this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version; ``0+unknown`` when run from a tree that is not installed."""
    try:
        return metadata.version("vllm-watchdog")
    except metadata.PackageNotFoundError:
        return "0+unknown"
