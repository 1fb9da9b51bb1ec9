"""``python -m bench [letters]``: measure, print, write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from bench import admission, data, elastic, first_point, paddlejobs, portal, reaction, report, runtime

LETTERS: Mapping[str, Callable[[], Sequence[report.Row]]] = {
    "D": data.measure,
    "E": elastic.measure,
    "K": lambda: [*first_point.measure(), *paddlejobs.measure(), *reaction.measure(), *admission.measure()],
    "P": portal.measure,
    "R": runtime.measure,
}


def main(arguments: Sequence[str]) -> int:
    wanted = list("".join(arguments).upper().replace(",", "")) or list(LETTERS)
    unknown = [letter for letter in wanted if letter not in LETTERS]
    if unknown:
        print(f"There are no rows {', '.join(unknown)}. Choose from: {', '.join(LETTERS)}.", file=sys.stderr)
        return 2
    for letter in wanted:
        rows = LETTERS[letter]()
        print(report.table(rows))
        print(f"Written to {report.write(letter, rows)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
