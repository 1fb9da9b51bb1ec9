"""Costs on standard output become points of curves."""

from __future__ import annotations

import json

import pytest

from runtime.metric_parser import FORMS, MOST_NAMES, CostReader


def read(*lines: str) -> list[tuple[int, str, object]]:
    reader = CostReader()
    points = [json.loads(point) for line in lines for point in reader.entries(1.0, line)]
    return [(step, name, value) for _, step, name, value in points]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.example)
def test_the_example_of_every_form_is_read_by_it(form: object) -> None:
    assert form.pattern.search(form.example)
    assert read(form.example)


# Lines as real programs print them, and their values.
LINES = [
    ("time: [2026-11-22 14:41:44], batch: [20], cost[1]:[0.805055]", [(20, "cost", 0.805055)]),
    ("step  5/10 - loss: 0.0811 - 11ms/step", [(5, "loss", 0.0811)]),
    ("step 10/938 [....] - loss: 0.2183 - acc: 0.9375 - 12ms/step", [(10, "loss", 0.2183), (10, "acc", 0.9375)]),
    ("Pass 0, Batch 100, Cost 12.35", [(100, "cost", 12.35)]),
    ("epoch: 0, batch_id: 10, auc: 0.5, loss: 0.69, avg_reader_cost: 0.0020 sec, avg_batch_cost: 0.1 sec, ips: 51.2",
     [(10, "auc", 0.5), (10, "loss", 0.69)]),
    ("ppcls INFO: [Train][Epoch 1/20][Iter: 30/312]lr(Cosine): 0.001, loss: 4.60, batch_cost: 0.52s, ips: 61.5",
     [(30, "loss", 4.6)]),
    ("trainer 0/2 epoch 3 loss 0.1234, 3.2 ms/step", [(3, "loss", 0.1234)]),
    ("epoch 0, batch 10, avg_cost: [0.69314718]", [(10, "cost", 0.69314718)]),
    ("step 5 cost 0.5", [(5, "cost", 0.5)]),
    ("cost=1e-3", [(0, "cost", 0.001)]),
    ("Cost: 2.", [(0, "cost", 2.0)]),
    ("loss: nan", [(0, "loss", "NaN")]),
    ("cost -inf", [(0, "cost", "-Infinity")]),
    ("Test with Pass 3, Cost 0.25", [(3, "test_cost", 0.25)]),
    ("782/782 - 3s - 4ms/step - accuracy: 0.91 - loss: 0.25 - val_accuracy: 0.89 - val_loss: 0.31 - val_mae: 0.4",
     [(0, "accuracy", 0.91), (0, "loss", 0.25), (0, "val_accuracy", 0.89), (0, "val_loss", 0.31), (0, "val_mae", 0.4)]),
    ("Epoch 3: val_loss improved from 0.52 to 0.31", []),
    ("epoch 3 val_loss 0.31 val_acc 0.9", [(3, "val_loss", 0.31), (3, "val_acc", 0.9)]),
    ("val_samples: 5000", []),
    ("rank 0 loss 250.8 -> 0.15, 110.5 steps/s", [(0, "loss", 250.8)]),
]  # fmt: skip


@pytest.mark.invariant("Costs that a program prints become metric points; durations do not.")
@pytest.mark.parametrize(("line", "points"), LINES, ids=[line for line, _ in LINES])
def test_printed_costs_become_points(line: str, points: list[tuple[int, str, object]]) -> None:
    assert read(line) == points


@pytest.mark.invariant("Costs that a program prints become metric points; durations do not.")
@pytest.mark.parametrize(
    "line",
    [
        "",
        "the cost of this is high",
        "avg_reader_cost: 0.002",
        "time cost: 12.3 ms",
        "cost: 3 seconds",
        "packet loss 3%",
        "model.loss 3",
        "my-cost_2 0.5",
        "lossless 1",
        "cost: ",
        "cost" + " " * 100_000 + "x",
    ],
)
def test_other_numbers_are_not_costs(line: str) -> None:
    assert read(line) == []


def test_steps_continue_when_their_count_restarts_with_every_epoch() -> None:
    lines = [f"Pass {number}, Batch {batch}, Cost 1" for number in range(2) for batch in (0, 10, 20)]
    assert [step for step, _, _ in read(*lines)] == [0, 10, 20, 21, 31, 41]


def test_lines_without_a_step_are_counted() -> None:
    assert [step for step, _, _ in read("cost 3", "cost 2", "cost 1")] == [0, 1, 2]


def test_evaluation_metrics_of_paddle_s_model_are_separate_curves() -> None:
    fit = ["Epoch 1/2", "step 10/10 - loss: 0.3 - 1ms/step", "Eval begin...", "step 10/10 - loss: 0.2 - 1ms/step"]
    lines = [*fit, "Eval samples: 40", "Epoch 2/2", "step 10/10 - loss: 0.1 - 1ms/step"]
    assert read(*lines) == [(10, "loss", 0.3), (10, "test_loss", 0.2), (20, "loss", 0.1)]


def test_only_the_beginning_of_a_long_line_is_looked_at() -> None:
    assert read("x" * 3000 + " cost 1") == []


def test_a_second_reader_continues_the_steps_of_the_first() -> None:
    lines = [
        "loss 3",
        "loss 2",
        "Eval begin...",
        "step 1 - loss: 1",
        "Eval samples: 5",
        "epoch 1 loss 1",
        "epoch 1 loss 0",
    ]
    reader, taken_over = CostReader(), CostReader()
    whole = [reader.points(1.0, line) for line in lines]
    for number, line in enumerate(lines):
        taken_over = CostReader(json.loads(json.dumps(taken_over.memory)))
        assert taken_over.points(1.0, line) == whole[number]


def test_names_of_the_validation_stay_as_they_are_while_a_model_is_evaluated() -> None:
    assert read("Eval begin", "step 2 - loss: 0.5 - val_loss: 0.7") == [(2, "test_loss", 0.5), (2, "val_loss", 0.7)]


def test_a_program_that_prints_ever_new_names_gets_a_bounded_number_of_curves() -> None:
    lines = [f"step {number} loss: 1.0 - val_{'x' * (number % 50)}{number}: 1" for number in range(1000)]
    assert len({name for _, name, _ in read(*lines)}) == MOST_NAMES
