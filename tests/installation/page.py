"""The commands of a documentation page, to run them as they are written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

_HEADING = re.compile(r"^(?P<level>#+) (?P<title>.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


class Section:
    """The text below one heading, up to the next heading of the same or a higher level."""

    def __init__(self, title: str, text: str) -> None:
        self.title, self.text = title, text

    def blocks(self, language: str = "") -> list[str]:
        """Return the code blocks in this language without their indentation; by default those of shell commands."""
        found = [block for block in _BLOCK.finditer(self.text) if block["language"] == language]
        return [textwrap.dedent(block["body"]) for block in found]

    def command(self, *words: str) -> str:
        """Return the only block of shell commands that contains all these words."""
        found = [block for block in self.blocks() if all(word in block for word in words)]
        assert len(found) == 1, f"{len(found)} blocks of section {self.title} contain {' and '.join(words)}"
        return found[0]


class Page:
    """A page of ``docs``, with the names of its examples replaced by those of an installation."""

    def __init__(self, file: Path, names: Mapping[str, str]) -> None:
        self._text = file.read_text()
        for example, name in names.items():
            assert example in self._text, f"{file.name} no longer contains {example}"
            self._text = self._text.replace(example, name)

    def section(self, title: str) -> Section:
        headings = list(_HEADING.finditer(self._text))
        (own,) = [heading for heading in headings if heading["title"] == title]
        after = [h for h in headings if h.start() > own.start() and len(h["level"]) <= len(own["level"])]
        return Section(title, self._text[own.end() : after[0].start() if after else len(self._text)])
