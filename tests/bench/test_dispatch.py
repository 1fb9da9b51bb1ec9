"""The simulated trainers of R8 read whole messages, in however many pieces they arrive."""

from __future__ import annotations

import socket
import threading

import pytest

from bench.runtime import dispatch
from runtime.master.messages import Trainer
from runtime.protocol import frames
from runtime.protocol.frames import Flag, Header, Op

PAUSE_SECONDS = 0.05


@pytest.mark.parametrize("cut", [1, frames.HEADER_BYTES, frames.HEADER_BYTES + 5])
def test_an_answer_in_two_pieces_is_read_completely(cut: int) -> None:
    payload = frames.to_json({"answer": "job_done", "passes": 1})
    message = frames.pack(Header(Op.TASK_GET, Flag.LAST), payload) + payload
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        simulated = dispatch._SimulatedTrainer(f"{host}:{port}", Trainer(0, 100))
        server = listener.accept()[0]
        server.sendall(message[:cut])
        threading.Timer(PAUSE_SECONDS, server.sendall, [message[cut:]]).start()
        assert simulated._received(len(message)) == message
        server.sendall(message[:cut])
        server.close()
        with pytest.raises(ConnectionResetError):
            simulated.receive()
