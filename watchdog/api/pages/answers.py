"""The page and its document for one request."""

from __future__ import annotations

from typing import Any

from .. import Views
from .docs import Reader
from .markup import html
from .summary import board
from .words import language, words


class Pages:
    """Answers for one daemon. May be called from many threads."""

    def __init__(self, views: Views) -> None:
        self._reader = Reader(views)

    def page(self, asked: str, accepted: str) -> str:
        """The page in the language asked for, else accepted (Accept-Language), else English."""
        say = words(language(asked, accepted))
        return html(board(self._reader.read(), say), say)

    def doc(self, asked: str, accepted: str) -> dict[str, Any]:
        """What changes on it, for its script: the same rows and cells."""
        return board(self._reader.read(), words(language(asked, accepted))).doc()
