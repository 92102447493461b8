"""Fixtures that many tests share: the real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[servers.Server]:
    """An empty Prometheus of this test alone."""
    with servers.prometheus(tmp_path / "prometheus") as server:
        yield server


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[servers.Server]:
    """An empty Alertmanager of this test alone."""
    with servers.alertmanager(tmp_path / "alertmanager") as server:
        yield server


@pytest.fixture(scope="session", params=[8, 9], ids=["es8", "es9"])
def elasticsearch(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """An Elasticsearch that the session's tests share, so a test takes index names of its own."""
    with servers.elasticsearch(request.param) as server:
        yield server
