"""Remove outputs and execution counts from the notebooks in docs/tutorials.

Usage: .venv/bin/python scripts/strip_notebooks.py
"""

from __future__ import annotations

import json
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parent.parent / "docs" / "tutorials"


def stripped(text: str) -> str:
    """Return the text of a notebook without what running it has added."""
    body = json.loads(text)
    for cell in body["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        cell["metadata"] = {"tags": tags} if (tags := cell["metadata"].get("tags")) else {}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    body["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file in sorted(TUTORIALS.glob("*.ipynb")):
        file.write_text(stripped(file.read_text(encoding="utf-8")), encoding="utf-8")
