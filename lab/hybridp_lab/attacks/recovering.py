"""What others do about poisoned frequencies: normalising, and LDPRecover's published rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.shares import to_simplex
from hybridp.public.randomisers import Oracle

__all__ = ["ASSUMED", "ldp_recover", "normalised"]

Floats = NDArray[np.float64]

ASSUMED = 0.2
"""LDPRecover's default guess of how many fake people there are for each honest one."""


def normalised(shares: Floats) -> Floats:
    """Shares shifted so that the least is 0, then scaled to add up to 1 (Cao, Jia and Gong 2021, section 7)."""
    up = shares - shares.min()
    total = float(up.sum())
    return np.asarray(up / total) if total > 0 else np.full_like(shares, 1 / len(shares))


def ldp_recover(poisoned: Floats, oracle: Oracle, targets: Sequence[int] = (), assumed: float = ASSUMED) -> Floats:
    """Sun et al. (ICDE 2024): take off what fake reports are expected to have added.

    What a fake report adds to all items together is known, ``(s - d q)/(p - q)`` where it supports s of d items; it is
    spread evenly over the items that have a positive share, or over the `targets` of the attack where the server is
    told them (LDPRecover*). ``(1 + eta) f - eta f_fake`` estimates the honest shares, and the nearest shares that are
    not negative and add up to 1 are the answer.

    >>> from hybridp.public.mechanisms import PureDP
    >>> from hybridp.public.randomisers import share_oracle
    >>> bool(ldp_recover(np.array([0.6, 0.3, 0.1]), share_oracle(PureDP(1.0), 3))[0] > 0.6)
    True
    """
    supported = getattr(oracle, "size", 1)
    gain = oracle.truth - oracle.other
    whole = (supported - oracle.other * len(poisoned)) / gain
    positive = np.isin(np.arange(len(poisoned)), targets) if targets else poisoned > 0
    fake = np.where(positive, whole / max(int(positive.sum()), 1), 0.0)
    return to_simplex((1 + assumed) * poisoned - assumed * fake)
