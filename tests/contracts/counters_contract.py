"""Contract of counters of requests (``portal.common.request_counters``). A subclass has a fixture ``counters``."""

from __future__ import annotations

import threading

from portal.common.request_counters import Counters


class CountersContract:
    """Mix into a test class. Keys are different in each test."""

    def test_the_first_begins_the_window(self, counters: Counters) -> None:
        assert counters.count("first", 60) == (1, 60)

    def test_further_ones_are_counted_in_the_rest_of_it(self, counters: Counters) -> None:
        counters.count("further", 60)
        count, left = counters.count("further", 60)
        assert count == 2
        assert 1 <= left <= 60

    def test_keys_are_counted_apart(self, counters: Counters) -> None:
        counters.count("one", 60)
        assert counters.count("other", 60)[0] == 1

    def test_a_window_ends(self, counters: Counters) -> None:
        for _ in range(3):
            counters.count("ends", 0.05)
        assert any(counters.count("ends", 0.05)[0] == 1 for _ in range(100_000))

    def test_an_undone_count_is_not_counted(self, counters: Counters) -> None:
        counters.count("undone", 60)
        counters.count("undone", 60)
        counters.uncount("undone")
        assert counters.count("undone", 60)[0] == 2

    def test_undoing_what_was_never_counted_changes_nothing(self, counters: Counters) -> None:
        counters.uncount("never")
        assert counters.count("never", 60)[0] == 1

    def test_counts_of_many_threads_are_all_different(self, counters: Counters) -> None:
        found: list[int] = []

        def count() -> None:
            found.extend(counters.count("many", 60)[0] for _ in range(20))

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(1, 161))
