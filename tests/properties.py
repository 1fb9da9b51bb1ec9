"""Hypothesis profiles for property tests, selected by the variable ``HYPOTHESIS_PROFILE``.

``dev`` (the default) runs a fifth of the examples. ``ci`` runs all of them; the seed in pyproject.toml makes two runs
of one commit the same, and no examples of earlier runs are replayed. ``deep`` runs ten times as many, with a seed that
``make test-deep`` draws and prints.
"""

from __future__ import annotations

import math
import os

from hypothesis import settings

_SHARES = {"dev": 0.2, "ci": 1.0, "deep": 10.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
_USUAL = 100


def examples(number: int) -> int:
    """Return the number of examples for a property with ``number`` of them in this run."""
    return max(1, math.ceil(number * _SHARES[PROFILE]))


def load_profile() -> None:
    """Use the profile that the environment names. Raises InvalidArgument for an unknown one.

    No profile has a deadline: the time of one example depends more on the machine than on the code.
    """
    for name, share in _SHARES.items():
        settings.register_profile(
            name,
            max_examples=math.ceil(_USUAL * share),
            deadline=None,
            print_blob=True,
            **({} if name == "dev" else {"database": None}),
        )
    settings.load_profile(PROFILE)


def in_words(seed: object) -> str:
    """Return the line that names profile and seed of a run, and how to repeat it."""
    return f"Hypothesis: profile {PROFILE}, seed {seed} (repeat: HYPOTHESIS_PROFILE={PROFILE} --hypothesis-seed={seed})"
