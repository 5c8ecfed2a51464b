"""Files of reports, as devices write them: the reports, how they were made, and nothing else that was not asked for."""

from __future__ import annotations

import csv
import itertools
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hybridp.device.shares import report_codes
from hybridp.public.envelope import appearing
from hybridp.public.messages import BATCH, MECHANISM
from hybridp.public.shares import ShareInvite
from hybridp.randomness import Randomness
from hybridp.tables import open_rows, write_reports

__all__ = ["write_share_reports", "write_slots"]


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


def write_share_reports(
    path: str | PathLike[str],
    invite: ShareInvite,
    out: str | PathLike[str],
    *,
    trust: str | None = None,
    person: str | None = None,
    table: str | None = None,
    overwrite: bool = False,
    keep: tuple[str, ...] = (),
    rng: Randomness,
) -> tuple[int, list[str]]:
    """A copy of a table in which local rows (all, without `trust`) lose their option and get one report.

    Gives the number of reports, and the columns that were left out: those that neither the release needs nor `keep`
    names.
    """
    with open_rows(path, table=table) as rows:
        needed = {invite.question.name, trust, person, *keep}
        left_out = [column for column in rows.columns if column not in needed]
        people = write_reports(
            rows,
            value=invite.question.name,
            trust=trust,
            report="report",
            mechanism_column=MECHANISM,
            mechanism_text=invite.simulated_text if rng.simulated else invite.text,
            lower=0.0,
            upper=1.0,
            person=person,
            kept=keep,
            feature=invite.question,
            batch=(BATCH, f"{int(rng.words(1)[0]):016x}"),
            randomise=lambda codes: report_codes(codes, invite, rng=rng),
            out=out,
            overwrite=overwrite,
        )
    return people, left_out
