"""Public data for the bench, read from the folder that HYBRIDP_DATA names, or generated stand-ins of the same shape.

Both data sets are public; results on a stand-in say so in the problem's name and version.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.noise import seeded, synthetic_data_generator

__all__ = ["ADULT_SIZES", "ADULT_TRAIN", "Labelled", "a1a", "adult", "adult_codes", "mnist"]

Ints = NDArray[np.int64]

# The domain of the 13 features of ADULT as private-pgm codes them (588 values with the label's two).
ADULT_SIZES = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42)
ADULT_TRAIN, ADULT_ROWS = 40_000, 48_842


@dataclass(frozen=True, eq=False, slots=True)
class Labelled:
    """Training and test examples: integer codes (one-hot positions) or pixel values, with labels."""

    train: NDArray[np.generic]
    train_labels: Ints
    test: NDArray[np.generic]
    test_labels: Ints
    source: str


def _folder(*needed: str) -> Path | None:
    """The data folder, if the environment names one that holds these files."""
    named = os.environ.get("HYBRIDP_DATA")
    folder = Path(named) if named else None
    return folder if folder and all((folder / name).exists() for name in needed) else None


@lru_cache(maxsize=1)
def adult() -> Labelled:
    """ADULT's 13 categorical or binned features and income above 50K: 40,000 examples to train on, 8,842 to test.

    The rows are put in a fixed random order first.
    """
    folder = _folder("adult.csv.gz", "adult-domain.json")
    rows = _made_up_adult(ADULT_ROWS) if folder is None else _read_adult(folder)
    must(len(rows) == ADULT_ROWS, "adult.csv.gz", f"must have {ADULT_ROWS} rows", len(rows))
    rows = rows[synthetic_data_generator(seeded(3)).permutation(len(rows))]
    x, y, train = rows[:, :-1], rows[:, -1], ADULT_TRAIN
    return Labelled(x[:train], y[:train], x[train:], y[train:], "generated" if folder is None else "adult")


def adult_codes() -> tuple[Ints, list[int]]:
    """All rows as codes, the label last, and the numbers of values; made up where there is no `HYBRIDP_DATA`."""
    folder = _folder("adult.csv.gz", "adult-domain.json")
    rows = _made_up_adult(ADULT_ROWS) if folder is None else _read_adult(folder)
    return np.asarray(rows, dtype=np.int64), [*ADULT_SIZES, 2]


def _read_adult(folder: Path) -> Ints:
    sizes = tuple(json.loads((folder / "adult-domain.json").read_text()).values())
    if sizes != (*ADULT_SIZES, 2):
        raise InvalidInput("`adult-domain.json` must describe the 13 features of ADULT and its label. Got another one.")
    with gzip.open(folder / "adult.csv.gz", "rt") as lines:
        return np.loadtxt(lines, delimiter=",", skiprows=1, dtype=np.int64)


def _made_up_adult(rows: int) -> Ints:
    """Codes with falling frequencies and a label from a random linear model: 24 % positive, error near 15 % at best."""
    draw = synthetic_data_generator(seeded(11))
    columns, score = [], np.zeros(rows)
    for size in ADULT_SIZES:
        share = 1 / np.arange(1.0, size + 1)
        codes = draw.choice(size, size=rows, p=share / share.sum())
        columns.append(codes)
        score += draw.normal(0, 0.8, size)[codes]
    score += draw.logistic(0, 0.5, rows)
    return np.column_stack([*columns, score > np.quantile(score, 0.76)]).astype(np.int64)


A1A_FEATURES, A1A_TRAIN, A1A_TEST = 123, 30_956, 1_605


@lru_cache(maxsize=1)
def a1a() -> Labelled:
    """ADULT as LIBSVM prepares it, in 123 binary features: the 30,956 rows of a1a.t to train on, a1a's 1,605 to test.

    So it is used by the dissertation's chapter 3 (whose print says 40,000). Made up, it is our stand-in for ADULT with
    every code written in binary digits.
    """
    folder = _folder("a1a/a1a.gz", "a1a/a1a.t.gz")
    if folder is None:
        made = _made_up_adult(A1A_TRAIN + A1A_TEST)
        widths = [max(1, (size - 1).bit_length()) for size in ADULT_SIZES]
        bits = [(made[:, j] >> b) & 1 for j, width in enumerate(widths) for b in range(width)]
        x, y = np.column_stack(bits).astype(np.uint8), made[:, -1]
        wide = np.zeros((len(x), A1A_FEATURES), dtype=np.uint8)
        wide[:, : x.shape[1]] = x
        return Labelled(wide[:A1A_TRAIN], y[:A1A_TRAIN], wide[A1A_TRAIN:], y[A1A_TRAIN:], "generated")
    parts = [_read_libsvm(folder / name) for name in ("a1a/a1a.t.gz", "a1a/a1a.gz")]
    rows = tuple(len(labels) for _, labels in parts)
    must(rows == (A1A_TRAIN, A1A_TEST), "a1a", f"must have {A1A_TRAIN} and {A1A_TEST} rows", rows)
    return Labelled(parts[0][0], parts[0][1], parts[1][0], parts[1][1], "a1a")


def _read_libsvm(path: Path) -> tuple[NDArray[np.uint8], Ints]:
    """Lines of a sign and the numbers of the ones, from 1."""
    with gzip.open(path, "rt") as file:
        lines = [line.split() for line in file if line.strip()]
    x = np.zeros((len(lines), A1A_FEATURES), dtype=np.uint8)
    for i, (_, *ones) in enumerate(lines):
        x[i, [int(one.partition(":")[0]) - 1 for one in ones]] = 1
    return x, np.array([line[0] in ("1", "+1") for line in lines], dtype=np.int64)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    with gzip.open(path, "rb") as file:
        raw = file.read()
    dims = raw[3]
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims))
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dims).reshape(shape)


@lru_cache(maxsize=1)
def mnist() -> Labelled:
    """Digits as rows of 784 numbers in [0, 1]: 60,000 to train on and 10,000 to test (stand-in: 6,000 and 1,000)."""
    files = [f"mnist/{part}-ubyte.gz" for part in ("train-images-idx3", "train-labels-idx1")]
    files += [f"mnist/{part}-ubyte.gz" for part in ("t10k-images-idx3", "t10k-labels-idx1")]
    folder = _folder(*files)
    if folder is None:
        return _made_up_digits(6_000, 1_000)
    x, y, x_test, y_test = (_read_idx(folder / name) for name in files)
    pixels = [np.asarray(part.reshape(len(part), -1), dtype=np.float32) / np.float32(255) for part in (x, x_test)]
    return Labelled(pixels[0], y.astype(np.int64), pixels[1], y_test.astype(np.int64), "mnist")


def _made_up_digits(train: int, test: int) -> Labelled:
    """Ten random prototypes of ink, moved about by noise."""
    draw = synthetic_data_generator(seeded(12))
    prototypes = draw.random((10, 784)) * (draw.random((10, 784)) < 0.2)
    labels = draw.integers(0, 10, train + test)
    pixels = prototypes[labels] + draw.normal(0, 0.35, (train + test, 784))
    x = np.clip(pixels, 0, 1).astype(np.float32)
    return Labelled(x[:train], labels[:train], x[train:], labels[train:], "generated")
