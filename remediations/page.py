"""Pages a person. It changes nothing on the node: the page goes out with the alerts, and this is
only the act's name in the table of acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..watchdog.acting import ActCase, Step
from ..watchdog.system import System


@dataclass(frozen=True, slots=True)
class PagePerson:
    """No steps: nothing is carried out."""

    name: ClassVar[str] = "page"
    effect: ClassVar[str] = "A person is told that the node does not help itself; nothing changes."
    disruptive: ClassVar[bool] = False
    verified: ClassVar[bool] = False

    def precheck(self, system: System, case: ActCase) -> str:  # noqa: ARG002 - the protocol's
        """Never declined."""
        return ""

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """Nothing to do."""
        return ()
