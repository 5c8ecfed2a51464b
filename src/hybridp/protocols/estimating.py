"""What the estimators with scikit-learn's conventions share: bounds, who trusts, randomness, and a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, PromiseWarning, must
from hybridp.randomness import Randomness, secure, seeded

__all__ = ["randomness_of", "stated_bounds", "trusted_rows", "warn_of_scalers"]

_CLOSE = 1e-9


def stated_bounds(name: str, bounds: tuple[ArrayLike, ArrayLike] | None, dims: int) -> tuple[list[float], list[float]]:
    """(lower, upper), each a number for all columns or one for each. There is no default: it would clip in silence."""
    if bounds is None:
        raise InvalidInput(
            f"`{name}` must be given: (lower, upper), public and chosen without looking at the data; what lies outside "
            "is clipped. Got none."
        )
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, dtype=np.float64), (dims,)).tolist() for b in bounds)
    except (ValueError, TypeError):
        raise InvalidInput(f"`{name}` must be (lower, upper), numbers or {dims} numbers each. Got others.") from None
    return lower, upper


def warn_of_scalers(columns: NDArray[np.float64]) -> None:
    """Warn where columns look as a scaler leaves them that was fitted to these very people, which no epsilon covers.

    A column with mean 0 and standard deviation 1, or from 0 to 1 with other values between, to rounding: no data of its
    own does that. It goes to whoever holds the data, and is no part of a release.
    """
    if len(columns) < 3:
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns of NaN alone
        mean, sd = np.nanmean(columns, axis=0), np.nanstd(columns, axis=0)
        low, high = np.nanmin(columns, axis=0), np.nanmax(columns, axis=0)
    standard = (np.abs(mean) < _CLOSE) & (np.abs(sd - 1) < _CLOSE)
    ends = (np.abs(low) < _CLOSE) & (np.abs(high - 1) < _CLOSE)
    between = ((columns > 0) & (columns < 1)).any(axis=0)  # a column of 0 and 1 alone is no scaler's
    if bool((standard | (ends & between)).any()):
        warnings.warn(
            "A column looks scaled by its own mean and deviation, or its own least and largest value: such a scaler "
            "tells something of everybody's value that epsilon does not cover. Scale by public numbers instead "
            "(FunctionTransformer), or leave it to `bounds`.",
            PromiseWarning,
            stacklevel=3,
        )


def trusted_rows(trust: ArrayLike | None, people: int) -> NDArray[np.bool_]:
    """Who trusts: everybody, unless each row says `trusted` or `local`, or True or False."""
    if trust is None:
        return np.ones(people, dtype=np.bool_)
    given = np.asarray(trust)
    must(given.shape == (people,), "trust", f"must have one entry for each of the {people} rows", given.shape)
    if given.dtype == np.object_ and all(isinstance(entry, bool | np.bool_) for entry in given):
        given = given.astype(np.bool_)  # pandas may keep them as objects
    if given.dtype == np.bool_:
        return given
    known = np.isin(given, ("trusted", "local"))
    must(bool(known.all()), "trust", "must say trusted or local (or be True or False) for every row", "another value")
    return np.asarray(given == "trusted")


def randomness_of(random_state: Any) -> Randomness:
    """The system's randomness for None; anything else is a seed, and a trial."""
    if random_state is None:
        return secure()
    if isinstance(random_state, np.random.RandomState):
        return seeded(int(random_state.randint(2**31 - 1)))
    if isinstance(random_state, np.random.Generator):
        return seeded(int(random_state.integers(2**31 - 1)))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    must(whole, "random_state", "must be None, a whole number or a NumPy generator", repr(random_state))
    return seeded(int(random_state))
