"""What a test found to be otherwise, and its text for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import Place
from ..model import NAME, Labels


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation that was not met: where it stands, which test, when (seconds), what."""

    place: Place
    test: str
    eval_time: float
    message: str
    expected: str = ""
    got: str = ""

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.test}, at {self.eval_time:g}s: {self.message}"]
        if self.expected or self.got:
            lines += _block("expected", self.expected) + _block("got", self.got)
        return "\n".join(lines)


def _block(title: str, text: str) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in (text or "nothing").splitlines())]


def labels_text(labels: Labels) -> str:
    """Write labels as PromQL does; the metric's name stands before the braces."""
    pairs = dict(labels)
    name = pairs.pop(NAME, "")
    inside = ", ".join(f"{key}={_quoted(value)}" for key, value in pairs.items())
    return f"{name}{{{inside}}}" if inside or not name else name


def _quoted(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def alerts_text(alerts: Iterable[tuple[Labels, Labels]]) -> str:
    """Write alerts one a line, their annotations behind."""
    return "\n".join(
        f"{labels_text(labels)} annotations {labels_text(annotations)}"
        for labels, annotations in alerts
    )


def sample_text(sample: tuple[Labels, float]) -> str:
    """Write a sample as PromQL does."""
    labels, value = sample
    return f"{labels_text(labels)} {value!r}"
