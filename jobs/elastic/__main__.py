"""``python -m jobs.elastic simulate``: what a policy makes of a published experiment or of a workload in files."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jobs.elastic.policy import policy
from jobs.elastic.simulation import report, scenarios, traces, what_if
from jobs.elastic.simulation.metrics import Outcome
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.workload import Workload

_MOST_SECONDS, _MOST_BYTES = 20, 2 * 1024**3


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    return int(options.run(options))


def _what_if(_options: argparse.Namespace) -> int:
    """Answer what-if questions, within fixed limits of CPU time and memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    questions = [what_if.Question.from_json(each) for each in json.load(sys.stdin)]
    json.dump([what_if.answer(each) for each in questions], sys.stdout)
    return 0


def _simulate(options: argparse.Namespace) -> int:
    try:
        workload = _workload(options)
    except OSError as error:
        sys.stderr.write(f"{error.filename} cannot be read: {error.strerror}.\n")
        return 2
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    chosen = scenarios.POLICIES[options.policy]
    if options.preempt:
        chosen = partial(policy.decide, rules=policy.Rules(preempts=True))
    outcome = simulate(workload, chosen, scenarios.TIMING, options.seed)
    try:
        _write(outcome, options)
    except OSError as error:
        sys.stderr.write(f"{error.filename} cannot be written: {error.strerror}.\n")
        return 2
    _print(outcome)
    return 0


def _print(outcome: Outcome) -> None:
    """Print the figures. The reader may close the pipe early, as ``head`` does."""
    try:
        for name, value in report.figures(outcome).items():
            shown = f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)
            sys.stdout.write(f"{name:<24}{shown}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest of the buffer would be written at exit and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(outcome: Outcome, options: argparse.Namespace) -> None:
    for write, place in (
        (report.write_json, options.json),
        (report.write_csv, options.csv),
        (report.write_page, options.html),
    ):
        if place is not None:
            write(outcome, place)


def _workload(options: argparse.Namespace) -> Workload:
    if options.scenario is not None:
        return scenarios.SCENARIOS[options.scenario](options.seed)
    if options.cluster is None:
        raise ValueError("A trace needs a cluster: add --cluster cluster.json.")
    return traces.workload(options.trace, options.services, options.cluster, options.until)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobs.elastic", description=__doc__)
    commands = parser.add_subparsers(required=True)
    asked = commands.add_parser("what-if", help="answer a question of the admins' page: JSON in, JSON out")
    asked.set_defaults(run=_what_if)
    simulation = commands.add_parser(
        "simulate",
        help="run a workload under a policy and print its figures",
        description="Run a workload under a policy and print its figures. All policies have the same reaction time: "
        f"they decide {scenarios.REACTION:g} s after an event, and every {scenarios.TIMING.interval:g} s.",
    )
    simulation.set_defaults(run=_simulate)
    what = simulation.add_mutually_exclusive_group(required=True)
    what.add_argument("--scenario", choices=sorted(scenarios.SCENARIOS), help="one of the published experiments")
    what.add_argument("--trace", type=Path, help="CSV: time,name,min,max,cpu,memory,gpu,duration or work,priority")
    simulation.add_argument("--services", type=Path, help="CSV: time,name,replicas,cpu,memory,priority")
    simulation.add_argument("--cluster", type=Path, help='JSON: {"nodes": [{"name", "count", "cpu", "memory", "gpu"}]}')
    simulation.add_argument("--until", type=float, help="seconds of a trace; without it, until all jobs have ended")
    simulation.add_argument("--policy", choices=sorted(scenarios.POLICIES), default="regatta")
    simulation.add_argument(
        "--preempt",
        action="store_true",
        help="with regatta: jobs of lower priority stop for newcomers, which the platform does not do",
    )
    simulation.add_argument("--seed", type=int, default=0)
    simulation.add_argument("--json", type=Path, help="where the figures go")
    simulation.add_argument("--csv", type=Path, help="a folder for the raw data")
    simulation.add_argument("--html", type=Path, help="a page with pictures")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
