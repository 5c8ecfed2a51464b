"""Mechanisms as the task document states them, and the longest that a report on its way can be.

Probabilities are whole numbers over 2^64, written as decimal strings, so that a browser draws them exactly and computes
no exponential.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import k_randomised_response
>>> described(k_randomised_response(PureDP(1.0), 3))["categories"]
3
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import OneSlot
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import LEVELS, DitheredBit, KRandomisedResponse, LocalAdditive, Piecewise, Randomiser
from hybridp.public.vector import VectorInvite
from hybridp.public.vector_randomisers import ScalarReports, UnitVector

__all__ = ["DIGITS", "FORM_CHARACTER", "FORM_NUMBER", "Bit", "Coordinates", "described", "described_vector"]
__all__ += ["direction_of", "level_of", "longest_number", "longest_vector", "some_coordinates"]

DIGITS = 10**24
"""25 characters: no double is written longer, in Python or in a browser."""
FORM_NUMBER, FORM_CHARACTER = 40, 9
"""Characters of a number in a page's form, and of one letter (%XX for each of 3 bytes, or of 4 in two halves)."""
Mechanism = DitheredBit | Piecewise | LocalAdditive | KRandomisedResponse | SubsetSelection | OneSlot | UnitVector


class Bit(msgspec.Struct, forbid_unknown_fields=True):
    """A dithered bit as it was drawn."""

    threshold: Annotated[int, msgspec.Meta(ge=0, lt=LEVELS)]
    above: bool


class Coordinates(msgspec.Struct, forbid_unknown_fields=True):
    """Some columns by their numbers, ascending, and the report on each: a bit, or a number in the column's own unit."""

    coordinates: list[int]
    each: list[Bit | float]


def described(mechanism: Mechanism) -> dict[str, Any]:
    """A randomiser as plain data; `browser` says whether the page can draw it exactly."""
    match mechanism:
        case DitheredBit():
            return {"name": "dithered", "flips": str(mechanism.flips), "gain": mechanism.gain, "browser": True}
        case Piecewise():
            own = {"width": str(mechanism.width), "inside": str(mechanism.inside)}
            return {"name": "piecewise", **own, "bound": mechanism.bound, "browser": True}
        case LocalAdditive():
            return {"name": mechanism.name, "bound": mechanism.bound, "browser": False}
        case KRandomisedResponse():
            kept = {"keep": str(mechanism.keep), "categories": mechanism.categories}
            return {"name": "k-rr", **kept, "browser": True}
        case SubsetSelection():
            of = {"categories": mechanism.categories, "size": mechanism.size}
            return {"name": "subset", **of, "keep": str(mechanism.keep), "browser": True}
        case UnitVector():
            cap: dict[str, Any] = {"pairs": mechanism.pairs, "top": mechanism.top, "inside": str(mechanism.inside)}
            return {"name": mechanism.name, "dimensions": mechanism.dimensions, **cap, "browser": False}
        case OneSlot():
            return {"name": mechanism.name, "browser": True}


def direction_of(invite: VectorInvite) -> UnitVector:
    """How one direction is reported, where that is what is asked for."""
    assert isinstance(invite.reports, UnitVector)
    return invite.reports


def some_coordinates(invite: VectorInvite) -> ScalarReports | None:
    """How some coordinates are reported on, each by itself; None where the report is one direction."""
    return invite.reports if isinstance(invite.reports, ScalarReports) else None


def described_vector(invite: VectorInvite) -> dict[str, Any]:
    """A report about several numbers. The page draws some coordinates of a box; a ball it leaves to a program."""
    reports, bounds = some_coordinates(invite), invite.bounds
    if reports is None:
        return described(direction_of(invite))
    each = described(reports.randomiser)
    return {
        "name": "coordinates",
        "dimensions": reports.dimensions,
        "reported": reports.reported,
        "reach": bounds.reach_steps,
        "each": each,
        "browser": each["browser"] and bounds.radius_steps is None,
    }


def longest_number(mechanism: Randomiser) -> Any:
    """The longest report on a number."""
    return {"threshold": LEVELS - 1, "above": False} if isinstance(mechanism, DitheredBit) else DIGITS


def longest_vector(invite: VectorInvite) -> Any:
    """The longest report on several numbers."""
    size, reports = invite.bounds.dimensions, some_coordinates(invite)
    if reports is None:
        return [DIGITS] * size
    each = [longest_number(reports.randomiser)] * reports.reported
    return {"coordinates": [size - 1] * reports.reported, "each": each}


def level_of(budget: PureDP | ApproxDP) -> dict[str, float]:
    return {"epsilon": budget.epsilon, "delta": budget.delta}
