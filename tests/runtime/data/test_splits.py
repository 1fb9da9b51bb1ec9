"""Selection of files for training, by their paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.data.splits import TRAIN, divide, split_of


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train/a.csv", "train"),
        ("digits-test.csv", "test"),
        ("2024/validation-00000-of-00003.tar", "validation"),
        ("Val_1.npy", "validation"),
        ("training.jsonl", "train"),
        # The first word counts; a part of a word does not.
        ("train/test-like.csv", "train"),
        ("latest.csv", ""),
        ("contest/valve.csv", ""),
    ],
)
def test_a_path_names_its_split(path: str, split: str) -> None:
    assert split_of(path) == split


@pytest.mark.parametrize(
    ("paths", "divided"),
    [
        (["a.csv", "b.csv"], {"train": ["a.csv", "b.csv"]}),
        (["a.csv", "test.csv"], {"train": ["a.csv"], "test": ["test.csv"]}),
        (["extra.csv", "train.csv", "test.csv"], {"train": ["train.csv"], "test": ["test.csv"]}),
        (["test.csv"], {"train": ["test.csv"], "test": ["test.csv"]}),
        ([], {"train": []}),
    ],
)
def test_selection_of_files_for_training(paths: list[str], divided: dict[str, list[str]]) -> None:
    assert divide(paths) == divided


@given(st.lists(st.sampled_from(["a", "train/a", "b.test", "val", "dev/x", "latest"]), min_size=1, unique=True))
def test_there_is_always_something_to_train_on_and_nothing_is_invented(paths: list[str]) -> None:
    divided = divide(paths)
    assert divided[TRAIN] and next(iter(divided)) == TRAIN
    assert all(set(part) <= set(paths) for part in divided.values())
