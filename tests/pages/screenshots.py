"""Takes the pictures of the status page that the documentation shows: ``make screenshots``.

A story's node behind the real HTTP side, in a real browser; equal runs give equal pictures.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tests.pages.serving import served
from tests.report.browser import Browser, browser
from tests.support.daemon import wait_for

FOLDER = Path(__file__).parents[2] / "docs" / "images"
PICTURES = (
    ("status-light", 1280, 1946, "light", "en", 0.75),
    ("status-dark", 1280, 1946, "dark", "zh", 0.75),
    ("status-phone", 375, 1250, "light", "en", 1),
)
"""Name, width and height of the window in pixels, scheme, language, scale of the picture."""

DRAWN = "document.querySelectorAll('.plot canvas').length === 7"


def take(
    page: Browser, url: str, width: int, height: int, scheme: str, lang: str, scale: float
) -> bytes:
    """One picture of the page's top, as PNG."""
    page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
             deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
    page.ask("Emulation.setEmulatedMedia",
             features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
    page.ask("Emulation.setScrollbarsHidden", hidden=True)
    page.open(f"{url}/?lang={lang}")
    wait_for(lambda: page.value(DRAWN))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
    found = page.ask("Page.captureScreenshot", format="png", clip=clip)
    return base64.b64decode(found["data"])


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder) as node, browser(folder / "profile") as page:
            for picture, *how in PICTURES:
                path = FOLDER / f"{picture}.png"
                path.write_bytes(take(page, node.url, *how))  # type: ignore[arg-type]
                print(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
