"""The status page at ``/``: what a person sees of a node, in English or Chinese.

One board of tables is worked out from what the daemon says; it goes out as HTML, which needs no
script, and as JSON, by which the page keeps itself up to date. It shows and never changes anything.
"""

from __future__ import annotations

from .answers import Pages
from .static import Static

__all__ = ["Pages", "Static"]
