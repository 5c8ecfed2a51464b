"""Files of reports that name a slot, as devices write them: the reports, how they were made, and nothing else."""

from __future__ import annotations

import csv
import itertools
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hybridp.public.envelope import appearing
from hybridp.public.messages import BATCH, MECHANISM
from hybridp.randomness import Randomness

__all__ = ["write_slots"]


def write_slots(out: str | PathLike[str], counts: NDArray[np.int64], mechanism: str, *, rng: Randomness) -> None:
    """A CSV with one line for each report, slot by slot, so that their order tells nothing.

    Beside each report stand the mechanism's text and a random name of this batch.
    """
    batch = f"{int(rng.words(1)[0]):016x}"
    with appearing(out) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["report", MECHANISM, BATCH])
        for slot, times in enumerate(counts.tolist()):
            writer.writerows(itertools.repeat((slot, mechanism, batch), times))
