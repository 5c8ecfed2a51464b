"""What reports on a number say of its whole distribution: any randomiser is a public matrix.

Reports that were collected for a mean are noisy probes of the distribution function. The share of people whose report
falls into a bin is linear in the distribution function F: with ``P(bin | x)``, which everybody knows,

    share(bin) = sum over cells of P(bin | x in the cell) (F(upper end) - F(lower end)).

* Dithered bit: a bin is a sign s and a stretch of thresholds u, and ``P(s = + | x, u) = 1 - q`` where x is above u,
  q otherwise. So ``(1 - B s)/2`` at the threshold u is unbiased for F(u).
* Piecewise: a bin is a stretch of the reports' range, whose density is high within one window around x.

Taking a bin of a report is post-processing. The files of old reports hold all that is needed: a dithered report is
``B s + u`` with B > 1, so that its sign is s.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> cell_chances(dithered_bit(PureDP(1.0)), 4).sum(axis=0).round(12).tolist()    # every report falls into some bin
[1.0, 1.0, 1.0, 1.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridp.errors import must
from hybridp.public.messages import OnNumber
from hybridp.public.randomisers import LEVELS, WORD, DitheredBit, Floats, Ints, Piecewise, Randomiser

__all__ = ["BINS", "CELLS", "PHASES", "BinnedReports", "ReportBins", "by_window", "cell_chances"]
__all__ += ["chances_at", "invite_bins", "report_bins"]

CELLS = 128
"""Cells of one width between the bounds, in which a distribution function is told."""
_WITHIN = 8  # places in a cell, over which the chances of people anywhere in it are averaged
_LONG = 6  # cells; of a longer window it does not matter where within a cell it ends


@dataclass(frozen=True, eq=False, slots=True)
class ReportBins:
    """Public bins of a randomiser's reports, in half-ranges around the middle, and what falls into them.

    A report y of sign s lies in bin ``offset_s + floor((y - start_s)/width)``, kept within ``count`` bins of its sign.
    """

    starts: tuple[float, float]
    width: float
    count: int
    signed: bool

    @property
    def size(self) -> int:
        return 2 * self.count if self.signed else self.count

    def numbers(self, reports: Floats, centre: float = 0.0, half: float = 1.0) -> Ints:
        """The bin of each report, in half-ranges around the middle or in the unit of a `centre` and a `half` range.

        The steps are those of the query that counts rows, so that a report at the edge of a bin falls to the same side.
        """
        moved = reports - centre
        plus = (moved > 0) & self.signed
        place = np.floor((moved - np.where(plus, self.starts[1] * half, self.starts[0] * half)) / (self.width * half))
        inside = np.clip(place, 0, self.count - 1).astype(np.int64)
        return np.asarray(inside + plus * self.count)


@dataclass(frozen=True, eq=False, slots=True)
class BinnedReports:
    """How many local reports fell into each bin. Mergeable by adding up.

    Those of a dithered bit may be about a window, in shares of the range: answers "below" by even bins of their
    thresholds, then answers "above", flips and all.
    """

    counts: Ints
    randomiser: Randomiser
    window: tuple[float, float] = (0.0, 1.0)

    @property
    def people(self) -> int:
        return int(self.counts.sum())

    @property
    def edges(self) -> Floats:
        """Places between which the probability of each bin is straight in a value, or nearly.

        They are the ends of cells. A piecewise report's window has its other end too: where it is a few cells long, or
        less than one, a value also passes from bin to bin where that end does.
        """
        if isinstance(self.randomiser, DitheredBit):
            return np.linspace(*self.window, len(self.counts) // 2 + 1)
        ends = np.linspace(0.0, 1.0, CELLS + 1)
        if (wide := self.randomiser.width / LEVELS) * CELLS > _LONG:
            return ends
        other = _piecewise_cuts(self.randomiser, CELLS) - wide
        return np.unique(np.concatenate([ends, other[(other > 0) & (other < 1)]]))


PHASES = (0.1, 0.3, 0.6)
"""Shares of the local people who are asked one after another, where nobody says otherwise."""
BINS = 64
"""Even bins of thresholds in each window."""


def invite_bins(invite: OnNumber) -> ReportBins:
    """The bins of reports on an invitation, of which windows are laid end to end: only thresholds' places matter."""
    within = isinstance(invite.mechanism, DitheredBit)
    return report_bins(invite.mechanism, BINS * len(invite.windows) if invite.windows and within else CELLS)


def by_window(counts: Ints, invite: OnNumber) -> Any:
    """Answers by `invite_bins`, window by window; all of them where nobody is asked within windows."""
    if not invite.windows:
        return BinnedReports(counts, invite.mechanism)
    parts = counts.reshape(2, len(invite.windows), BINS)
    return tuple(BinnedReports(parts[:, i].ravel(), invite.mechanism, one) for i, one in enumerate(invite.windows))


def report_bins(randomiser: Randomiser, cells: int = CELLS) -> ReportBins:
    """The bins of a randomiser's reports, for a distribution function told in so many cells."""
    must(cells >= 2, "cells", "must be at least 2", cells)
    if isinstance(randomiser, DitheredBit):
        return ReportBins((-randomiser.gain - 1.0, randomiser.gain - 1.0), 2.0 / cells, cells, True)
    unit = 2 / randomiser.slope  # a step of the cell, as a share of LEVELS, in half-ranges of a report
    start = -(randomiser.offset / LEVELS) * unit - 1
    return ReportBins((start, start), unit / cells, len(_piecewise_cuts(randomiser, cells)) - 1, False)


def cell_chances(randomiser: Randomiser, cells: int = CELLS) -> Floats:
    """The probability of each of `report_bins` for somebody whose value lies, anywhere, in each cell."""
    within = (np.arange(_WITHIN * cells) + 0.5) / (_WITHIN * cells)
    return np.asarray(chances_at(randomiser, within, cells).reshape(-1, cells, _WITHIN).mean(axis=2))


def chances_at(randomiser: Randomiser, places: Floats, cells: int = CELLS) -> Floats:
    """The probability of each of `report_bins` for somebody at each of these places, in shares of the range.

    For a value between two of a report's `edges` it is between those of both, in proportion to its place: exactly for
    the dithered bit, and closely for the others. So reports see a law as if everybody stood at the edges, in numbers
    whose running sums are the means of F between them: of a law with atoms they tell these means, and nothing of F
    between them.
    """
    if isinstance(randomiser, DitheredBit):
        q = randomiser.flips / WORD
        above = np.clip(places * cells - np.arange(cells)[:, None], 0.0, 1.0)  # which thresholds of a bin lie below
        says = (q + (1 - 2 * q) * above) / cells
        return np.concatenate([1 / cells - says, says])
    share, wide, cuts = randomiser.inside / WORD, randomiser.width / LEVELS, _piecewise_cuts(randomiser, cells)
    inside = np.diff(np.clip(np.subtract.outer(cuts, places), 0.0, wide), axis=0)
    return np.asarray(share * inside / wide + (1 - share) * (np.diff(cuts)[:, None] - inside))


def _piecewise_cuts(randomiser: Piecewise, cells: int) -> Floats:
    """Where the bins of reports are cut, in shares of LEVELS: x has the window [x, x + wide) of [0, 1 + wide)."""
    cuts = np.arange(cells + -(-randomiser.width * cells // LEVELS) + 1) / cells
    cuts[-1] = 1 + randomiser.width / LEVELS
    return cuts
