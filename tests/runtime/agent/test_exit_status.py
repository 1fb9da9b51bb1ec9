"""Messages for how a process ended."""

from __future__ import annotations

import pytest

from runtime import contract
from runtime.agent.exit_status import Ending, Force, Forced, TracebackReader, ending
from runtime.messages import Message
from runtime.messages import training as training_messages

TRACEBACK = """\
Traceback (most recent call last):
  File "/data/work/train.py", line 12, in <module>
    main()
  File "/data/work/lib/model.py", line 3, in main
    numpy.load("x")
  File "/usr/lib/python3/numpy/io.py", line 400, in load
    raise FileNotFoundError(x)
FileNotFoundError: [Errno 2] No such file or directory: 'x'
"""


def read(*texts: str) -> TracebackReader:
    reader = TracebackReader("/data/work")
    for text in texts:
        reader.feed(text.splitlines())
    return reader


def test_an_error_is_reported_with_the_users_own_line() -> None:
    assert read(TRACEBACK).error == "FileNotFoundError: [Errno 2] No such file or directory: 'x' in lib/model.py line 3"


def test_of_several_errors_the_last_is_reported() -> None:
    other = TRACEBACK.replace("FileNotFoundError: ", "package.OtherError: ")
    assert read(TRACEBACK, "\nDuring handling of the above exception:\n\n", other).error.startswith(
        "package.OtherError"
    )


def test_a_syntax_error_is_reported_though_it_has_no_traceback() -> None:
    text = '  File "/data/work/train.py", line 2\n    def\n       ^\nSyntaxError: invalid syntax\n'
    assert read(text).error == "SyntaxError: invalid syntax in train.py line 2"


def test_an_error_without_a_message_is_reported() -> None:
    text = 'Traceback (most recent call last):\n  File "/data/work/train.py", line 1, in <module>\nKeyboardInterrupt\n'
    assert read(text).error == "KeyboardInterrupt in train.py line 1"


def test_an_error_of_the_runtime_that_was_reported_keeps_its_code() -> None:
    message = training_messages.INIT_CALLED_TWICE()
    reader = read(
        f'Traceback (most recent call last):\n  File "train.py", line 3\nruntime.errors.UsageError: {message}\n'
    )
    plain = reader.error
    reader.reported = message
    assert reader.error == plain == f"runtime.errors.UsageError: {message} in train.py line 3"
    assert isinstance(reader.error, Message)
    assert isinstance(error := reader.error.params["error"], Message)
    assert isinstance(text := error.params["text"], Message)
    assert text.code == message.code


def test_another_error_than_the_reported_one_stays_as_it_was_printed() -> None:
    reader = read(TRACEBACK)
    reader.reported = training_messages.INIT_CALLED_TWICE()
    assert reader.error == "FileNotFoundError: [Errno 2] No such file or directory: 'x' in lib/model.py line 3"


def test_a_very_long_message_is_cut() -> None:
    text = f'Traceback (most recent call last):\n  File "<string>", line 1\nValueError: {"x" * 9999}\n'
    assert len(read(text).error) < 400


def test_ordinary_lines_are_no_errors() -> None:
    assert read("Warning: slow\nValueError: not raised\n").error == ""


@pytest.mark.parametrize(
    ("status", "forced", "expected"),
    [
        (0, None, Ending(0, None, False, "")),
        (3, None, Ending(3, None, False, training_messages.EXITED(code=3))),
        (-9, None, Ending(None, 9, False, training_messages.TERMINATED_BY_SIGNAL(signal="9 (SIGKILL)"))),
        (-60, None, Ending(None, 60, False, training_messages.TERMINATED_BY_SIGNAL(signal=60))),
        (-24, None, Ending(None, 24, False, training_messages.CPU_TIME_EXCEEDED(seconds="3,600"))),
        (-9, Forced(Force.MEMORY, "out"), Ending(None, 9, True, "out")),
        (-9, Forced(Force.PROCESSES, "many"), Ending(1, None, False, "many")),
        (-15, Forced(Force.FENCED, "lost"), Ending(contract.EXIT_RESTART, None, False, "lost")),
    ],
)
def test_exit_messages(status: int, forced: Forced | None, expected: Ending) -> None:
    assert ending(status, forced, read(), memory=0, cpu_seconds=3600) == expected


def test_numpys_memory_error_counts_as_out_of_memory() -> None:
    text = TRACEBACK.replace("FileNotFoundError: ", "numpy._core._exceptions._ArrayMemoryError: ")
    expected = Ending(1, None, True, training_messages.OUT_OF_MEMORY_LIMIT(limit="512 MiB"))
    assert ending(1, None, read(text), memory=512 * 2**20, cpu_seconds=0) == expected


def test_an_error_that_was_caught_is_not_reported() -> None:
    assert ending(0, None, read(TRACEBACK), memory=0, cpu_seconds=0).why == ""
