"""The acts as the guard sees them: of which kind, what they touch, how long they may last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["device", "restart", "traffic", "page"]


@dataclass(frozen=True, slots=True)
class Act:
    """``exclusive``: touches cards or the front, so that a second one on the node waits.
    ``moves``: goes to other cards or another server, so that its destination must be fit.
    ``aside``: users are kept on the standby meanwhile, if there is one that is fit.
    ``deadline`` in seconds, unless the policy says ``at_most``."""

    kind: Kind
    deadline: float
    exclusive: bool = True
    moves: bool = False
    aside: bool = False


ACTS: Mapping[str, Act] = {
    "card_failover": Act("device", 900.0, moves=True),
    "reset_card": Act("device", 600.0),
    "lower_frequency": Act("device", 60.0),
    "restart": Act("restart", 900.0, aside=True),
    "quantize": Act("restart", 1200.0),
    "defragment": Act("restart", 1800.0, aside=True),
    "drain": Act("traffic", 600.0),
    "shed_load": Act("traffic", 600.0),
    "cache_only": Act("traffic", 600.0, exclusive=False),  # a flag of one service, no reload
    "page": Act("page", 0.0, exclusive=False),
}
