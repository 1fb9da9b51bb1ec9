"""Create the shipped datasets from the copies inside the scikit-learn wheel.

    python scripts/make_public_datasets.py [directory]

Writes ``<directory>/public/{digits,diabetes}`` (default: ``datasets`` of the project). The output depends only on the
source data, so running it again changes no byte. scikit-learn is needed only here, never to run the product.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runtime.data import record_codec, recordio
from runtime.data.catalogue import DESCRIPTION

SEED = 20170801
TRAIN_SHARE = 0.8


@dataclass(frozen=True)
class Source:
    """One dataset before it is written. ``chunk_records`` sets how many tasks a pass has."""

    name: str
    chunk_records: int
    x: npt.NDArray[np.float32]
    y: list[int] | list[float]
    description: Mapping[str, Any] = field(default_factory=dict)


def digits() -> Source:
    table = _read("digits.csv.gz", ",")
    return Source(
        name="public/digits",
        chunk_records=72,
        x=(table[:, :-1] / 16.0).astype(np.float32),
        y=[int(label) for label in table[:, -1]],
        description={
            "title": "Handwritten digits, 8 x 8 pixels",
            "task": "classification",
            "classes": 10,
            "features": {
                "shape": [64],
                "dtype": "float32",
                "range": [0.0, 1.0],
                "meaning": "grey levels of 8 x 8 pixels, row by row; the original 0..16 divided by 16",
            },
            "label": {"type": "integer", "range": [0, 9], "meaning": "the digit"},
            "source": "Optical Recognition of Handwritten Digits (test part), UCI Machine Learning Repository, "
            f"https://doi.org/10.24432/C50P49; taken from the copy in scikit-learn {metadata.version('scikit-learn')}",
            "licence": "CC BY 4.0",
            "citation": "Alpaydin, E. and Kaynak, C. (1998). Optical Recognition of Handwritten Digits [Dataset]. "
            "UCI Machine Learning Repository. https://doi.org/10.24432/C50P49",
        },
    )


def diabetes() -> Source:
    raw = _read("diabetes_data_raw.csv.gz")
    x = (raw - raw.mean(axis=0)) / raw.std(axis=0) / len(raw) ** 0.5
    return Source(
        name="public/diabetes",
        chunk_records=24,
        x=x.astype(np.float32),
        y=[float(label) for label in _read("diabetes_target.csv.gz")],
        description={
            "title": "Progression of diabetes after one year",
            "task": "regression",
            "features": {
                "shape": [10],
                "dtype": "float32",
                "range": [round(float(x.min()), 6), round(float(x.max()), 6)],
                "names": ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"],
                "meaning": "ten baseline measures, each centred and scaled so that the sum of its squares over all "
                "442 patients is 1",
            },
            "label": {"type": "real", "range": [25.0, 346.0], "meaning": "measure of progression one year later"},
            "source": "Diabetes data of Least Angle Regression, "
            "https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html; "
            f"taken from the copy in scikit-learn {metadata.version('scikit-learn')}",
            "licence": "None stated by the authors; distributed with scikit-learn (BSD-3-Clause)",
            "citation": "Efron, B., Hastie, T., Johnstone, I. and Tibshirani, R. (2004). Least Angle Regression. "
            "Annals of Statistics 32(2), 407-499.",
        },
    )


def _read(name: str, delimiter: str | None = None) -> npt.NDArray[np.float64]:
    """Read a table from the wheel's files. Importing scikit-learn for this would take seconds."""
    package = util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("Install scikit-learn first: pip install -r requirements-dev.txt")
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / name, delimiter=delimiter)


def write(source: Source, directory: Path) -> None:
    """Write the files of one dataset and their description."""
    folder = directory / source.name
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(SEED).permutation(len(source.y))
    cut = int(len(order) * TRAIN_SHARE)
    splits = {
        split: _write_split(source, rows, folder / f"{split}-00000-of-00000.recordio")
        for split, rows in (("train", order[:cut]), ("test", order[cut:]))
    }
    body = {"name": source.name, **source.description, "splits": splits}
    body["split"] = f"{TRAIN_SHARE:.0%} for training, drawn by numpy.random.default_rng({SEED}).permutation"
    (folder / DESCRIPTION).write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_split(source: Source, rows: npt.NDArray[np.int64], path: Path) -> dict[str, Any]:
    with path.open("wb") as file, recordio.Writer(file, compressor="gzip") as writer:
        for number, row in enumerate(rows):
            if number % source.chunk_records == 0:
                writer.flush()
            writer.write(record_codec.encode(source.x[row], source.y[row]))
    content = path.read_bytes()
    listed = {
        "path": path.name,
        "bytes": len(content),
        "records": len(rows),
        "chunks": len(recordio.scan(path)),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return {"records": len(rows), "files": [listed]}


def main(directory: Path) -> None:
    for source in (digits(), diabetes()):
        write(source, directory)
        sys.stdout.write(f"{source.name}: {len(source.y)} records below {directory}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "datasets")
