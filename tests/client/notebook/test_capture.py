"""Programs that are made from cells and functions, with what these use from the notebook."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regatta.notebook import program
from regatta.notebook.errors import CaptureError, CellSyntaxError
from regatta.notebook.program import FILE
from tests.client.notebook.notebooks import ran


def result_of(made: program.Program, name: str = "result", monkeypatch: pytest.MonkeyPatch | None = None) -> Any:
    """Run a program as a job does, and return one of its variables."""
    for variable, value in made.env.items():
        assert monkeypatch is not None
        monkeypatch.setenv(variable, value)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(made.text, FILE, "exec", dont_inherit=True), namespace)
    return namespace[name]


def cell(body: str, *before: str, **values: Any) -> program.Program:
    return program.of_cell(body, ran(*before, **values), {})


def problems(body: str, *before: str, **values: Any) -> tuple[str, ...]:
    with pytest.raises(CaptureError) as refused:
        cell(body, *before, **values)
    return refused.value.problems


# --- What is captured ------------------------------------------------------------------------------------------------
def test_a_cell_runs_with_the_imports_constants_and_functions_of_the_notebook() -> None:
    before = (
        "import math\nfrom os.path import join as glue\nFACTOR = 2\ndef double(x):\n    return FACTOR * math.floor(x)"
    )
    assert result_of(cell('result = double(2.5), glue("a", "b")', before)) == (4, "a/b")


def test_the_memory_of_the_notebook_counts_and_not_an_older_cell() -> None:
    assert result_of(cell("result = f()", "def f(): return 1", "def f(): return 2")) == 2


def test_functions_that_call_each_other_are_captured_once() -> None:
    before = "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)"
    made = cell("result = even(10)", before)
    assert (result_of(made), made.text.count("def even")) == (True, 1)


def test_a_class_is_captured_with_its_base_above_it() -> None:
    before = "class Base:\n    def other(self): return Child\nclass Child(Base):\n    size: int = 3"
    assert result_of(cell("result = Base().other()().size", before)) == 3


def test_a_decorator_and_what_it_uses_stand_above_the_decorated_function() -> None:
    before = "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(): return 2 * f()\n    return g"
    assert result_of(cell("result = three()", before, "@twice\ndef three(): return 3")) == 6


def test_a_lambda_with_a_statement_of_its_own_is_captured() -> None:
    assert result_of(cell("result = square(3)", "square = lambda x: x * x")) == 9


def test_a_function_under_two_names_is_the_same_function() -> None:
    assert result_of(cell("result = f is g", "def f(): ...", "g = f")) is True


def test_a_submodule_that_the_code_reads_is_imported() -> None:
    made = cell('result = xml.etree.ElementTree.fromstring("<a/>").tag', "import xml.etree.ElementTree")
    assert "import xml.etree.ElementTree\n" in made.text


def test_what_the_cell_binds_itself_is_not_captured() -> None:
    assert "import" not in cell("table = 1\nresult = table", table=io.StringIO()).text


def test_postponed_annotations_of_a_function_are_kept() -> None:
    before = "from __future__ import annotations\ndef f(x: Unknown): return x"
    assert result_of(cell("result = f(1)", before)) == 1


def test_a_future_import_of_the_cell_moves_to_the_top() -> None:
    assert result_of(cell("from __future__ import annotations\ndef f(x: Unknown): return x\nresult = f(1)")) == 1


def test_the_program_is_the_same_each_time() -> None:
    before = 'import math, json, os\nNAMES = {"b", "a", "c"}\ndef f(): return math, json, os, NAMES'
    assert len({cell("f()", before).text for _ in range(5)}) == 1


def test_methods_that_a_module_offers_as_functions_are_imported() -> None:
    made = cell("result = randint(1, 1), rnd() < 1", "from random import randint, random as rnd")
    assert result_of(made) == (1, True)


def test_a_function_that_reads_the_name_of_its_module_leaves_that_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = ran("seen = []\ndef train():\n    seen.append(__name__)")
    cells.namespace["train"].__globals__["__name__"] = "elsewhere"
    assert result_of(program.of_function(cells.namespace["train"], cells, {}), "seen", monkeypatch) == ["__main__"]


# --- Parameters ------------------------------------------------------------------------------------------------------
def test_a_parameter_takes_the_place_of_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program.of_cell("result = rate()", ran("lr = 0.1\ndef rate(): return lr"), {"lr": 0.5})
    assert (result_of(made, monkeypatch=monkeypatch), made.env) == (0.5, {"PARAM_lr": "0.5"})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("print(1)", "Nothing in the cell uses the parameter `lr`."),
        ("lr = 1\nprint(lr)", "Line 2 of the cell sets `lr`, so the parameter would have no effect. Remove the line."),
    ],
)
def test_a_parameter_without_effect_is_refused(body: str, problem: str) -> None:
    with pytest.raises(CaptureError) as refused:
        program.of_cell(body, ran(), {"lr": 0.5})
    assert refused.value.problems == (problem,)


def test_a_function_is_called_with_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = ran("seen = []\ndef train(lr, name='x'):\n    seen.append((lr, name))")
    made = program.of_function(cells.namespace["train"], cells, {"lr": 0.5})
    assert result_of(made, "seen", monkeypatch) == [(0.5, "x")]


def test_a_function_that_needs_other_parameters_is_refused() -> None:
    cells = ran("def train(lr): ...")
    with pytest.raises(CaptureError, match=r"`train` cannot be called with these parameters: missing .* 'lr'"):
        program.of_function(cells.namespace["train"], cells, {})


# --- What cannot be sent ---------------------------------------------------------------------------------------------
class Table:
    """Stand-in for a table of pandas."""


Table.__module__, Table.__qualname__ = "pandas.core.frame", "DataFrame"
Table.__name__ = "DataFrame"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (io.StringIO(), "is an open file, which no other process can read."),
        (Table(), "is a pandas table, and only code and constants can be sent. Upload it as a dataset"),
        (np.zeros(3), "is a NumPy array, and only code and constants can be sent. Upload it as a dataset"),
        (np.float32(1), "is a NumPy number (float32). Convert it: float(x), int(x) or x.item()."),
        (
            threading.Lock(),
            "is an object of type _thread.lock, and only code and constants can be sent. Make it inside",
        ),
        ([lambda: 1], "is an object of type list"),
        ("x" * 200_000, "is a constant of 200,002 characters; the limit is 100,000."),
    ],
)
def test_an_object_that_cannot_be_sent_is_named_with_the_next_step(value: object, said: str) -> None:
    (problem,) = problems("a = 1\nprint(thing)", thing=value)
    assert problem.startswith(f"`thing` (line 3 of the cell) {said}")


def test_a_closure_is_named_with_its_variables() -> None:
    before = "def make():\n    opened = 1\n    def use(): return opened\n    return use\nuse = make()"
    (problem,) = problems("use()", before)
    assert "uses `opened` of the function around it" in problem


def test_a_function_without_source_is_named() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): ...", namespace)
    (problem,) = problems("f()", f=namespace["f"])
    assert problem == "`f` has no source text. Define it with `def` in a cell and run the cell."


def test_a_lambda_inside_another_statement_is_named() -> None:
    (problem,) = problems("first()", "pair = (lambda: 1, lambda: 2)\nfirst = pair[0]")
    assert "is a lambda without a statement of its own" in problem


def test_a_function_that_uses_an_earlier_one_of_its_name_is_refused() -> None:
    (problem,) = problems("f()", "def f(): return 1", "g = f\ndef f(): return g() + 1")
    assert problem.startswith("`g` was defined as `f`, which means another object now.")


def test_a_name_that_a_captured_definition_replaces_is_refused() -> None:
    (problem,) = problems("print(g(), f)", "def f(): return 1", "g = f\nf = 5")
    assert problem == "`f` (line 2 of the cell) means another object there than elsewhere. Rename one of the two."


@pytest.mark.parametrize("name", ["f", "fast"])
def test_a_function_that_was_wrapped_after_its_definition_is_refused(name: str) -> None:
    (problem,) = problems(f"{name}()", f"import functools\ndef f(): return 1\n{name} = functools.cache(f)")
    assert problem.startswith(f"`{name}` was wrapped after its definition, and a job would not have the wrapper.")


@pytest.mark.parametrize("name", ["unknown", "display"])
def test_a_name_that_a_job_does_not_have_is_named(name: str) -> None:
    (problem,) = problems(f"print(1)\n{name}(1)")
    assert problem.startswith(f"`{name}` (line 3 of the cell)")


def test_all_problems_are_named_at_once() -> None:
    assert len(problems("f(), g(), h")) == 3


def test_a_problem_inside_a_function_names_the_function() -> None:
    (problem,) = problems("f()", "def f():\n    return log", log=io.StringIO())
    assert problem.startswith("`log` (line 2 of `f`) is an open file")


# --- Lines -----------------------------------------------------------------------------------------------------------
def test_a_syntax_error_has_the_line_of_the_cell_whose_first_line_is_the_magic() -> None:
    with pytest.raises(CellSyntaxError) as refused:
        cell("a = 1\nb = = 2")
    assert refused.value.line == 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("a = 1\nreturn a", "'return' outside function"),
        ("a = 1\nawait a", r"'await' outside function. .* asyncio.run\(\)"),
        ("a = 1\nnonlocal a", "nonlocal declaration"),
    ],
)
def test_a_statement_that_no_program_can_have_is_refused_with_its_line(body: str, said: str) -> None:
    with pytest.raises(CellSyntaxError, match=said) as refused:
        cell(body)
    assert (refused.value.line, refused.value.problems[1].strip()) == (3, body.split("\n")[1])


def test_a_magic_in_the_cell_is_explained() -> None:
    with pytest.raises(CellSyntaxError, match="Magics and shell commands run only in a notebook"):
        cell("%matplotlib inline\nprint(1)")


def lines_in_cells(made: program.Program, call: Callable[[], object]) -> list[str]:
    import traceback

    try:
        call()
    except ZeroDivisionError as error:
        text = "".join(traceback.format_exception(error)).splitlines()
        return [made.at_cells(line).strip() for line in text if "Cell In" in made.at_cells(line)]
    raise AssertionError("nothing was raised")


def test_a_traceback_names_the_lines_of_the_cells() -> None:
    before = "X = 1", "import math\n\ndef divide():\n    a = math.pi\n    return a / 0"
    made = program.of_cell("b = X\ndivide()", ran(*before), {}, label="Cell In[3]")
    assert lines_in_cells(made, lambda: result_of(made)) == [
        "Cell In[3], line 3, in <module>",
        "Cell In[2], line 5, in divide",
    ]
