"""Jobs for an installation: the example of the guide, and one that tries the walls around a job."""

from __future__ import annotations

import json
from typing import Any

from jobs.builds.images import launcher
from regatta import Client, Job

_ROLE = {"cpu": 0.1, "memory": "256Mi"}
_MARK = "reached "

# Connects to each address and prints a JSON object: name to open, refused, silent or unknown (no such name).
_REACH = """\
import json, socket, threading
from runtime import dist

job = dist.init()
found = {}

def connect(name, host, port):
    try:
        with socket.create_connection((host, port), timeout=5):
            found[name] = "open"
    except socket.gaierror:
        found[name] = "unknown"
    except ConnectionRefusedError:
        found[name] = "refused"
    except OSError:
        found[name] = "silent"

threads = [threading.Thread(target=connect, args=(name, *address)) for name, address in TARGETS.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(MARK + json.dumps(found), flush=True)
"""

# Gives the store commands without an account, with the generated client in the runtime's own environment, which any
# code in the pod can start. Prints a JSON object: call to the status of the response, or "obeyed".
_COMMANDS = """\
import json
import grpc
from pyetcd import etcdrpc

channel = grpc.insecure_channel(STORE)
calls = {
    "Maintenance/Alarm": etcdrpc.AlarmRequest(action=etcdrpc.AlarmRequest.ACTIVATE, alarm=etcdrpc.NOSPACE),
    "Auth/AuthDisable": etcdrpc.AuthDisableRequest(),
    "KV/Range": etcdrpc.RangeRequest(key=b"/", range_end=b"0"),
    "KV/Compact": etcdrpc.CompactionRequest(revision=1),
    "Lease/LeaseGrant": etcdrpc.LeaseGrantRequest(TTL=60),
    "Cluster/MemberList": etcdrpc.MemberListRequest(),
    "Maintenance/Status": etcdrpc.StatusRequest(),
}
answers = {}
for name, request in calls.items():
    call = channel.unary_unary("/etcdserverpb." + name, request_serializer=lambda message: message.SerializeToString())
    try:
        call(request, timeout=10)
        answers[name] = "obeyed"
    except grpc.RpcError as error:
        answers[name] = error.code().name
print(MARK + json.dumps(answers), flush=True)
"""
_TAKEOVER = """\
import subprocess
from runtime import dist

job = dist.init()
done = subprocess.run([PYTHON, "-c", COMMANDS], capture_output=True, text=True)
print(done.stdout.strip() or done.stderr[-500:], flush=True)
"""


def digits(client: Client) -> dict[str, Any]:
    """Return the example job of the guide with small requests: two trainers and a parameter server."""
    example = client.examples.get("digits")
    roles = {name: {**role, **_ROLE} for name, role in example["roles"].items()}
    return {**example, "roles": roles}


def reach(targets: dict[str, tuple[str, int]]) -> dict[str, Any]:
    """Return a job that tries to connect to each of these addresses from its pod."""
    return _one("reach", f"TARGETS = {targets!r}\nMARK = {_MARK!r}\n{_REACH}")


def takeover(store: str) -> dict[str, Any]:
    """Return a job that gives a coordination store commands without an account."""
    commands = f"STORE = {store!r}\nMARK = {_MARK!r}\n{_COMMANDS}"
    return _one("takeover", f"PYTHON = {str(launcher.PYTHON)!r}\nCOMMANDS = {commands!r}\n{_TAKEOVER}")


def _one(name: str, code: str) -> dict[str, Any]:
    return {
        "name": name,
        "framework": "native",
        "entrypoint": "train.py",
        "files": {"train.py": code},
        "dataset": "public/digits",
        "roles": {"trainer": {"replicas": 1, "min": 1, **_ROLE}, "pserver": {"replicas": 1, **_ROLE}},
    }


def result(client: Client, job: Job) -> dict[str, str]:
    """Return the JSON object that a job printed after its mark."""
    texts = [line.text for line in client.jobs.logs.read(job.id)]
    (found,) = [text.removeprefix(_MARK) for text in texts if text.startswith(_MARK)]
    answers: dict[str, str] = json.loads(found)
    return answers
