"""Why an object cannot be sent with the code of a job, and what to do instead."""

from __future__ import annotations

import io
from types import FunctionType
from typing import Any

_DATA = "Upload it as a dataset (regatta data upload NAME FILES) and read it with job.reader(), or make it in the code."
_INSIDE = "Make it inside the function or the cell."
# Types by the top package and the name; others are known by their class.
_KNOWN = {
    ("pandas", "DataFrame"): ("a pandas table", _DATA),
    ("pandas", "Series"): ("a pandas column", _DATA),
    ("polars", "DataFrame"): ("a polars table", _DATA),
    ("numpy", "ndarray"): ("a NumPy array", _DATA),
    ("torch", "Tensor"): ("a PyTorch tensor", _DATA),
}


def of(value: Any) -> str:
    """Return the end of a message that begins with the name: what the object is, and the next step."""
    kind = type(value)
    top = kind.__module__.split(".")[0]
    if isinstance(value, io.IOBase):
        return "is an open file, which no other process can read. Open it inside the function or the cell."
    what, step = _KNOWN.get((top, kind.__name__), (f"is an object of type {_named(kind)}", _INSIDE))
    if top == "numpy" and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return f"is a NumPy number ({kind.__name__}). Convert it: float(x), int(x) or x.item()."
    head = what if what.startswith("is ") else f"is {what}"
    return f"{head}, and only code and constants can be sent. {step}"


def too_large(size: int, limit: int) -> str:
    """Say that a constant is too large. Both in characters."""
    return f"is a constant of {size:,} characters; the limit is {limit:,}. {_DATA}"


def closure_of(function: Any) -> str:
    """Name the variables of an enclosing function that a function uses; empty if there are none."""
    if not isinstance(function, FunctionType) or not function.__code__.co_freevars:
        return ""
    variables = [name for name in function.__code__.co_freevars if name != "__class__"]
    if not variables:
        return ""
    listed = ", ".join(f"`{name}`" for name in variables)
    return f"uses {listed} of the function around it. Pass them as arguments or parameters."


def _named(kind: type) -> str:
    own = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"
