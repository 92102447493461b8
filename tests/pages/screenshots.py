"""Takes the pictures of the status page and of a report that the documentation shows:
``make screenshots``.

A story's node behind the real HTTP side, and the report on a recorded incident, in a real browser;
equal runs give equal pictures.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tests.pages.serving import served
from tests.report.browser import Browser, browser
from tests.support.daemon import wait_for
from vllm_watchdog.watchdog.report import RecordingSource, compose, html

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "docs" / "images"
RECORDED = REPOSITORY / "tests" / "replays" / "engine-hung"
PICTURES = (
    ("status-light", 1280, 1946, "light", "en", 0.75),
    ("status-dark", 1280, 1946, "dark", "zh", 0.75),
    ("status-phone", 375, 1250, "light", "en", 1),
)
"""Name, width and height of the window in pixels, scheme, language, scale of the picture."""

REPORT = (1100, 2000, "light", 0.75)
DRAWN = "document.querySelectorAll('.plot canvas').length === 7"


def take(
    page: Browser, url: str, width: int, height: int, scheme: str, scale: float, drawn: str = "1"
) -> bytes:
    """One picture of a page's top, as PNG."""
    page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
             deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
    page.ask("Emulation.setEmulatedMedia",
             features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
    page.ask("Emulation.setScrollbarsHidden", hidden=True)
    page.open(url)
    wait_for(lambda: page.value(drawn))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
    found = page.ask("Page.captureScreenshot", format="png", clip=clip)
    return base64.b64decode(found["data"])


def report(folder: Path) -> str:
    """The address of the report on the recorded incident that was healed."""
    source = RecordingSource(RECORDED)
    healed = next(each for each in source.incidents() if each.service)
    path = folder / "report.html"
    path.write_text(html(compose(source, healed, "0.1.0", 0.0)))
    return path.as_uri()


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder) as node, browser(folder / "profile") as page:
            for picture, width, height, scheme, lang, scale in PICTURES:
                url = f"{node.url}/?lang={lang}"
                keep(picture, take(page, url, width, height, scheme, scale, DRAWN))
            keep("report", take(page, report(folder), *REPORT))


def keep(picture: str, data: bytes) -> None:
    """Write one picture, and say so."""
    path = FOLDER / f"{picture}.png"
    path.write_bytes(data)
    print(f"{path.relative_to(REPOSITORY)}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
