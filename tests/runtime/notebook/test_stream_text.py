"""Text of a stream: carriage returns and backspaces overwrite."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.notebook.stream_text import StreamText

PIECES = st.lists(st.text(alphabet="ab\n\r\b", max_size=8), max_size=8)


def _terminal(text: str) -> tuple[list[str], int]:
    """Return the lines of a terminal after a text, and the column of its cursor."""
    lines, column = [""], 0
    for character in text:
        if character == "\n":
            lines.append("")
            column = 0
        elif character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        else:
            lines[-1] = lines[-1][:column] + character + lines[-1][column + 1 :]
            column += 1
    return lines, column


@given(PIECES)
def test_the_text_shows_what_a_terminal_shows_and_goes_on_from_the_same_column(pieces: list[str]) -> None:
    text = StreamText()
    for piece in pieces:
        text.add(piece)
    assert _terminal(str(text)) == _terminal("".join(pieces))


@given(PIECES)
def test_the_length_is_that_of_the_lines(pieces: list[str]) -> None:
    text = StreamText()
    for piece in pieces:
        text.add(piece)
    assert text.length == len("\n".join(_terminal("".join(pieces))[0]))


def test_a_progress_bar_stays_one_line() -> None:
    text = StreamText()
    for percent in range(101):
        text.add(f"\r{percent:3} %")
    assert str(text) == "100 %"
