"""Command line of the PaddleJob controller: ``python -m jobs.operator``."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence

from jobs.operator.model import crd, names


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code.

    0 after SIGTERM or Ctrl-C; 1 if leadership is lost, no cluster is configured, or the address cannot be used.
    """
    args = _parser().parse_args(arguments)
    return int(args.run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.operator",
        description="The PaddleJob controller. It needs a cluster in which deploy/kubernetes/crd.yaml is applied.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("crd", help="write the CustomResourceDefinition, as YAML").set_defaults(run=_write_crd)
    run = commands.add_parser(
        "run",
        help="run the controller until SIGTERM",
        description="Watches PaddleJobs and makes their pods, services and ConfigMaps.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.set_defaults(run=_run)
    run.add_argument(
        "--kubeconfig", help="file that says where the cluster is; else the cluster's own, or ~/.kube/config"
    )
    run.add_argument("--namespace", default="", help="look at this namespace alone; empty: at all")
    run.add_argument(
        "--namespace-prefix",
        default="",
        help="leave alone jobs in namespaces whose names begin otherwise: they have another controller; empty: none",
    )
    run.add_argument(
        "--lease-namespace", default="", help="of several controllers one acts: keep the Lease here; empty: no election"
    )
    run.add_argument("--scheduling", choices=("", names.VOLCANO), default="", help="let Volcano place pods")
    run.add_argument(
        "--init-image",
        default="",
        help="image of the init container that waits for the names of a role's pods; empty: none",
    )
    run.add_argument(
        "--gang-seconds",
        type=_seconds,
        default=300.0,
        help="how long some pods of a job may hold nodes while others find none; 0: for ever",
    )
    run.add_argument(
        "--lost-seconds",
        type=_seconds,
        default=120.0,
        help="after how long a pod that should be gone, but whose node is silent, is taken for gone; 0: never",
    )
    run.add_argument(
        "--replace-seconds",
        type=_seconds,
        default=8.0,
        help="how long the creator of a job may take to decide about a lost pod before spec.maxStarts applies",
    )
    run.add_argument("--workers", type=_count, default=4, help="passes at a time")
    run.add_argument("--requests", type=_count, default=16, help="requests to the API server at a time")
    run.add_argument(
        "--listen", type=_address, default="0.0.0.0:8080", help="address of /healthz, /readyz and /metrics"
    )
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return parser


def _write_crd(args: argparse.Namespace) -> int:
    sys.stdout.write(crd.text())
    return 0


def _run(args: argparse.Namespace) -> int:
    # Imported here because the official client takes a second to import.
    from jobs.operator.client.api import NoCluster, connect
    from jobs.operator.model.observed import Settings
    from jobs.operator.model.pod_options import PodOptions
    from jobs.operator.run.controller import Options
    from jobs.operator.run.manager import ProcessOptions, serve

    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    pods = PodOptions(args.init_image, bool(args.scheduling))
    settings = Settings(pods, args.gang_seconds, args.lost_seconds, args.replace_seconds)
    options = Options(args.namespace, args.workers, args.requests, settings, args.namespace_prefix)
    host, port = args.listen
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        # Connections for a watch of each kind, and for the requests.
        api = connect(args.kubeconfig, args.requests + args.workers + 8)
        return serve(api, options, ProcessOptions(args.lease_namespace, host, port), stop)
    except NoCluster as problem:
        return _fail(f"There is no configuration of a cluster: {problem} Name one with --kubeconfig.")
    except OSError as problem:
        return _fail(
            f"The controller cannot listen on {host}:{port}: {problem.strerror}. Choose another address with --listen."
        )


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 1


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= 256:
        raise argparse.ArgumentTypeError(f'"{text}" is no number from 1 to 256')
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 10**9:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds')
    return seconds


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f'"{text}" is no address: write host:port, such as 127.0.0.1:8080')
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
