"""Starts ``runtime.inspection.inside`` in every Python process of a replica, then runs the next ``sitecustomize``.

It never fails: a process that cannot be inspected runs as it would without this file.
"""

import os
import sys

_DIRECTORY = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  pathlib takes 5 ms to import


def _begin() -> None:
    directory = os.environ.get("REGATTA_INSPECTION")
    if not directory:
        return
    try:
        from runtime.inspection import inside

        inside.begin(directory)
    except Exception:  # noqa: BLE001, S110
        pass
    # A program may have a module of its own named ``runtime``, which Python would not look for any more.
    for name in [name for name in sys.modules if name == "runtime" or name.startswith("runtime.")]:
        del sys.modules[name]


def _run_next() -> None:
    """Run the ``sitecustomize`` that Python would have found without this one. Its errors are its own."""
    from importlib.machinery import PathFinder

    sys.path[:] = [path for path in sys.path if path != _DIRECTORY]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec  # only now: it takes milliseconds to import

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_begin()
_run_next()
