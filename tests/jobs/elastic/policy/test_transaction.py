"""Transactions of a decision: savepoints and rollback."""

from __future__ import annotations

from jobs.elastic.policy.transaction import Transaction


def test_a_rollback_undoes_the_changes_since_the_savepoint_newest_first() -> None:
    transaction, undone = Transaction(), list[str]()
    transaction.record(lambda: undone.append("before"))
    savepoint = transaction.savepoint()
    transaction.record(lambda: undone.append("first"))
    transaction.record(lambda: undone.append("second"))
    transaction.rollback(savepoint)
    assert undone == ["second", "first"]
    transaction.rollback(0)
    assert undone == ["second", "first", "before"]


def test_a_committed_change_is_not_undone() -> None:
    transaction, undone = Transaction(), list[str]()
    transaction.record(lambda: undone.append("committed"))
    transaction.commit()
    transaction.rollback(transaction.savepoint())
    transaction.rollback(0)
    assert undone == []
