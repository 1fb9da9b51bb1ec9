"""Valid job specifications for tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

GOOD: dict[str, Any] = {"name": "digits", "files": {"train.py": "x = 1\n"}}

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
resources = {"cpu": st.sampled_from([0.5, 1, "250m", 2.5]), "memory": st.integers(2**27, 2**40)}

scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
parameters = scalars | st.text("ab 1é", max_size=9)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    replicas = draw(st.integers(1, 8))
    trainer = {name: draw(values) for name, values in resources.items()}
    pserver = {name: draw(values) for name, values in resources.items()}
    return {
        "name": draw(names),
        "entrypoint": "train.py",
        "files": GOOD["files"],
        "passes": draw(st.integers(1, 100_000)),
        "mode": draw(st.sampled_from(["sync", "async", "m_of_n(2)", "ssp(0)", "outer(100)"])),
        "roles": {
            "trainer": {"replicas": replicas, "min": draw(st.integers(1, replicas)), **trainer},
            "pserver": {"replicas": draw(st.integers(1, 4)), **pserver},
            "master": {"replicas": draw(st.integers(1, 2)), "cpu": draw(st.sampled_from((0.1, 0.5, 2.0)))},
        },
        "params": draw(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), parameters, max_size=5)),
        "env": draw(st.dictionaries(st.from_regex(r"[A-Z]{1,8}", fullmatch=True), st.text("ab c=", max_size=9))),
        "timeout": draw(st.integers(1, 10**6)),
        "retries": draw(st.integers(0, 10)),
    }
