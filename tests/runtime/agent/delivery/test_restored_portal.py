"""A portal whose database was restored to an earlier state: the agent repeats what it reported, and loses no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.agent.delivery.ingest_client import Answer, Gap, Taken
from runtime.agent.delivery.spool import LOGS
from tests.runtime.agent.delivery.test_shipping import LAST, Shop, takes


class Restored:
    """Answers of a portal that takes everything, and names another state after ``calls`` calls."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self, call: str, message: Any) -> Answer:
        self._left -= 1
        answer = takes(call, message)
        assert isinstance(answer, Taken)
        return Taken({**answer.body, contract.EPOCH: "before" if self._left >= 0 else "after"})


@pytest.mark.invariant("After the portal's database was restored, an agent repeats its reports, in order.")
def test_reports_are_repeated_in_order_once_the_state_has_another_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Restored(calls=2))
    shop.sender.report("starting")
    shop.sender.report("registered")
    shop.sender.append(LOGS, ['[1.0, "stdout", "hello"]'])
    shop.sender.start()
    assert shop.sender.finish(tmp_path / "output", LAST)
    assert shop.ingest.reports() == ["starting", "registered", "starting", "registered", "exited"]


def test_reports_are_sent_once_while_the_state_keeps_its_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Restored(calls=100))
    shop.sender.report("starting")
    shop.sender.append(LOGS, ['[1.0, "stdout", "hello"]'])
    shop.sender.start()
    assert shop.sender.finish(tmp_path / "output", LAST)
    assert shop.ingest.reports() == ["starting", "exited"]


def test_a_replica_whose_earlier_pod_is_gone_says_so_and_does_not_go_back_for_ever(tmp_path: Path) -> None:
    (tmp_path / contract.NUMBERS_FILE).write_text(json.dumps({LOGS: 7}))

    def restored(call: str, message: Any) -> Answer:
        """Answer as a portal that has lost entries 4 to 7, which the pod before had printed."""
        return takes(call, message) if call != LOGS or message.get("gone") == 7 else Gap(3)

    shop = Shop(tmp_path, restored)
    shop.sender.append(LOGS, ['[1.0, "stdout", "eight"]'])
    shop.sender.start()
    assert shop.sender.finish(tmp_path / "output", LAST)
    assert shop.ingest.batches(LOGS) == [(8, [[1.0, "stdout", "eight"]])]
