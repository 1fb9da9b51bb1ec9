"""The child process of ``jobs.streams.search``: matches lines against one pattern until its input ends. Standard
library only.

Each line of input is a JSON list of texts; each line of output the JSON list of the places of those that match.
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
