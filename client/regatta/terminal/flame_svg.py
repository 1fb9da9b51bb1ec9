"""A flame graph of folded stacks as an SVG file without scripts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

WIDTH, ROW = 1200, 18
_LETTER = 6.6  # the width of a letter of the font
_LEAST = 0.5  # narrower boxes are left out
_COLOURS = ("#e8a15c", "#e0854f", "#d9b24f", "#c98f6b", "#e3b778", "#d87a5a")


@dataclass
class _Node:
    name: str
    count: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def draw(stacks: Mapping[str, int], title: str) -> str:
    """Return the SVG of the stacks (``thread;outer;inner`` with counts), the outermost functions at the top."""
    root = _Node("all")
    for stack, count in stacks.items():
        root.count += count
        node = root
        for name in stack.split(";"):
            node = node.children.setdefault(name, _Node(name))
            node.count += count
    boxes = list(_boxes(root, 0, 0.0, float(WIDTH)))
    height = ROW * (2 + max(depth for _, depth, _, _ in boxes))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        f'font-size="11"><title>{_text(title)}</title>'
    )
    return "\n".join([head, *(_box(root.count, *box) for box in boxes), "</svg>", ""])


def _boxes(node: _Node, depth: int, left: float, width: float) -> Iterator[tuple[_Node, int, float, float]]:
    waiting = [(node, depth, left, width)]
    while waiting:
        box = node, depth, left, width = waiting.pop()
        yield box
        for child in sorted(node.children.values(), key=lambda each: each.name):
            share = width * child.count / max(1, node.count)
            if share >= _LEAST:
                waiting.append((child, depth + 1, left, share))
            left += share


def _box(total: int, node: _Node, depth: int, left: float, width: float) -> str:
    share = 100 * node.count / max(1, total)
    letters = int((width - 6) / _LETTER)
    label = node.name if len(node.name) <= letters else node.name[: max(0, letters - 1)] + "…"
    text = f'<text x="{left + 3:.1f}" y="{depth * ROW + 13}">{_text(label)}</text>' if letters >= 3 else ""
    colour = quoteattr(_COLOURS[sum(node.name.encode("utf-8", "replace")) % len(_COLOURS)])
    shape = f'x="{left:.1f}" y="{depth * ROW}" width="{max(0.3, width - 0.6):.1f}" height="{ROW - 1}" fill={colour}'
    return f"<g><title>{_text(node.name)}: {node.count} ({share:.1f} %)</title><rect {shape}/>{text}</g>"


def _text(text: str) -> str:
    return escape("".join(letter if letter.isprintable() else "?" for letter in text))
