"""Child process of ``jobs.streams.search``: matches texts against one pattern until its input ends. Standard library.

Each line of input is a JSON list of texts; each line of output is the JSON list of the indices of the texts that match.
"""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    """Serve one search. The pattern is the only argument."""
    pattern = re.compile(sys.argv[1])
    for request in sys.stdin.buffer:
        texts = json.loads(request)
        places = [place for place, text in enumerate(texts) if pattern.search(text)]
        sys.stdout.buffer.write(json.dumps(places).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
