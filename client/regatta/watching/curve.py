"""Curve of a metric as SVG, made without JavaScript: it looks the same in every front end and in a saved notebook."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 24
_MOST = 2000  # values that a curve keeps; beyond, neighbours are joined
_COLOUR = "#1f6feb"


@dataclass
class Curve:
    """Values by step, in order of arrival. Memory is bounded: above a number of values, every second one is dropped."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def add(self, step: float, value: float) -> None:
        self._seen += 1
        if not math.isfinite(value) or self._seen % self._every:
            return
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > _MOST:
            self.steps, self.values, self._every = self.steps[1::2], self.values[1::2], self._every * 2

    def svg(self, name: str) -> str:
        """Return the picture; empty if there are no values yet."""
        if not self.steps:
            return ""
        across = _Scale(min(self.steps), max(self.steps), _LEFT, WIDTH - _RIGHT)
        down = _Scale(min(self.values), max(self.values), HEIGHT - _BOTTOM, _TOP)
        order = sorted(range(len(self.steps)), key=self.steps.__getitem__)
        path = " ".join(f"{across.at(self.steps[n]):.1f},{down.at(self.values[n]):.1f}" for n in order)
        marks = "".join(_row(down.at(value), value) for value in down.ticks())
        marks += "".join(_column(across.at(step), step) for step in across.ticks())
        last = f"{self.values[-1]:.5g} at step {self.steps[-1]:g}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'style="max-width:{WIDTH}px;width:100%;font:11px sans-serif">'
            f"<title>{escape(name)}: {last}</title>{marks}"
            f'<polyline fill="none" stroke="{_COLOUR}" stroke-width="1.5" points="{path}"/></svg>'
        )


@dataclass(frozen=True)
class _Scale:
    """Places values between two pixels. Equal limits are widened, so that there is always a range."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Return about four round values inside the limits."""
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        size = 10.0 ** math.floor(math.log10(span / 4))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= span / 4)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


def _row(y: float, value: float) -> str:
    return (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884" />'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#888">{value:g}</text>'
    )


def _column(x: float, step: float) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle" fill="#888">{step:g}</text>'
