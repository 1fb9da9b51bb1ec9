"""The limit of connections without proof."""

import threading

from runtime.protocol.peer_proof import PeerProof
from runtime.protocol.proof import UNPROVEN_LIMIT


class Link:
    """A connection that only counts how often it was aborted."""

    def __init__(self):
        self.aborted = 0

    def abort(self):
        self.aborted += 1


def aborted(links):
    return [at for at, link in enumerate(links) if link.aborted]


def added(proof, number):
    links = [Link() for _ in range(number)]
    for link in links:
        proof.add(link)
    return links


def test_one_connection_too_many_without_proof_aborts_the_oldest():
    links = added(PeerProof(b"secret", threading.Event()), UNPROVEN_LIMIT + 2)
    assert aborted(links) == [0, 1]


def test_a_connection_that_has_ended_leaves_its_place_to_another():
    proof = PeerProof(b"secret", threading.Event())
    links = added(proof, UNPROVEN_LIMIT)
    proof.discard(links[5])
    added(proof, 1)
    assert aborted(links) == []


def test_without_a_secret_there_is_no_limit():
    proof = PeerProof(b"", threading.Event())
    assert not proof.is_required
    assert aborted(added(proof, UNPROVEN_LIMIT + 2)) == []
