"""Check that no tracked file contains a retired word: ``python scripts/retired_words.py``.

``retired_words.toml`` lists the words with their replacements. A whole word counts, in any case, also if it spans two
lines; as part of an identifier it does not count. Exits with 1 and prints one line for each use.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
# Between the words of a term: spaces, or a line break and the start of a comment.
_BETWEEN = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:#|//|\*)?[ \t]*)"


def pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the terms. A term may have several words."""
    terms = (_BETWEEN.join(map(re.escape, word.split())) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{'|'.join(terms)})(?!\w)", re.IGNORECASE)


def places(text: str, words: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield line number, retired word and replacement for each use in a text."""
    for match in pattern(words).finditer(text):
        word = " ".join(re.sub(r"[#/*]", " ", match[0]).split()).lower()
        yield text.count("\n", 0, match.start()) + 1, word, words[word]


def files(excepted: Sequence[str]) -> Iterator[Path]:
    """Yield the tracked files that are checked."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if not any(fnmatch(name, one) for one in excepted) and (ROOT / name).is_file():
            yield ROOT / name


def main() -> int:
    known = tomllib.loads(LIST.read_text(encoding="utf-8"))
    found = 0
    for path in files(known["except"]["paths"]):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        for line, word, instead in places(text, known["words"]):
            found += 1
            print(f"{path.relative_to(ROOT)}:{line}: write {instead}, not {word}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
