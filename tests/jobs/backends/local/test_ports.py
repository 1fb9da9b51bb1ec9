"""Port assignment for the processes of attempts."""

from __future__ import annotations

import random
import socket

import pytest

from jobs.backends.local import ports
from jobs.messages import cluster as messages
from tests.messages import pattern


def test_what_others_were_given_is_not_given_again() -> None:
    first = ports.choose(20, set(), random.Random(1))
    again = ports.choose(20, set(range(first, first + 20)), random.Random(1))
    assert not set(range(first, first + 20)) & set(range(again, again + 20))


def test_a_port_on_which_somebody_listens_is_not_given() -> None:
    with socket.socket() as other:
        first = ports.choose(3, set(), random.Random(2))
        other.bind((ports.HOST, first + 1))
        other.listen()
        again = ports.choose(3, set(), random.Random(2))
        assert first + 1 not in range(again, again + 3)


def test_without_free_ports_choose_raises() -> None:
    with pytest.raises(ports.NoPorts, match=pattern(messages.NO_FREE_PORTS)):
        ports.choose(5, set(range(ports.FIRST, ports.LAST)), random.Random(3))
