"""Files that the page loads: its script, its style, the library that draws. Nothing from outside.

Their addresses carry a digest of what they hold, so a browser may keep them for good.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

TYPES = {
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "uplot.js": "text/javascript; charset=utf-8",
    "uplot.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "uplot-LICENSE.txt": "text/plain; charset=utf-8",
}
FOR_GOOD = "public, max-age=31536000, immutable"
EACH_TIME = "no-cache"


class Static:
    """The files by name."""

    def get(self, name: str, version: str) -> tuple[bytes, str, str] | None:
        """A file's content, its type and how it may be cached; None for one that is not there."""
        if name not in TYPES:
            return None
        fresh = version == _digest(name)
        return _content(name), TYPES[name], FOR_GOOD if fresh else EACH_TIME


def address(name: str) -> str:
    """Where the page finds a file, relative to itself."""
    return f"static/{name}?v={_digest(name)}"


@cache
def _content(name: str) -> bytes:
    package = __package__.rpartition(".")[0]
    return resources.files(package).joinpath("static").joinpath(name).read_bytes()


@cache
def _digest(name: str) -> str:
    return hashlib.sha256(_content(name)).hexdigest()[:16]
