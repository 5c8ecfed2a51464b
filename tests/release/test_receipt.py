"""The one builder of receipts: who is promised what against whom, and what a trial must say."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from hybridp.public.mechanisms import PureDP
from hybridp.release.release import CURATOR, VIEWER, Protection, Receipt, build_receipt, one_receipt

NOISE = Protection(PureDP(0.5), "noise on the sum", "a remark")
REPORT = Protection(PureDP(2.0), "a report")
COIN = SimpleNamespace(label="r", simulated=False)


def levels(receipt: Receipt) -> dict[tuple[str, str], float | None]:
    return {(p.people, p.against): None if p.budget is None else p.budget.epsilon for p in receipt.promises}  # type: ignore[union-attr]


@pytest.mark.parametrize(("trusted", "local"), list(product([None, NOISE], [None, REPORT])))
def test_each_group_that_took_part_is_promised_something_against_both(
    trusted: Protection | None, local: Protection | None
) -> None:
    found = levels(build_receipt(trusted, local, assumes=[], rng=COIN))
    expected: dict[tuple[str, str], float | None] = {}
    if trusted is not None:
        expected |= {("trusted", CURATOR): None, ("trusted", VIEWER): 0.5}
    if local is not None:
        expected |= {("local", CURATOR): 2.0, ("local", VIEWER): 2.0}
    assert found == expected


def test_what_the_release_adds_is_no_promise_against_the_curator() -> None:
    amplified = Protection(PureDP(0.1), "a report", "amplified", on_device=PureDP(2.0))
    found = build_receipt(None, amplified, assumes=[], rng=COIN)
    assert levels(found) == {("local", CURATOR): 2.0, ("local", VIEWER): 0.1}
    assert [p.note for p in found.promises] == ["", "amplified"]  # the remark is about the release


@pytest.mark.parametrize(("seeded_noise", "drawn"), list(product([False, True], repeat=2)))
def test_a_trial_says_which_promises_nobody_was_given(seeded_noise: bool, drawn: bool) -> None:
    noise = SimpleNamespace(label="r", simulated=seeded_noise)
    found = build_receipt(NOISE, REPORT, assumes=["first", "", "last"], rng=noise, simulated_local=drawn)
    assert found.simulated == (seeded_noise or drawn)
    assert found.assumes[:2] == ("first", "last")
    said = [line for line in found.assumes if line.startswith("SIMULATION")]
    assert [("noise" in line, "local reports" in line) for line in said] == (
        [(True, False)] * seeded_noise + [(False, True)] * drawn
    )
    assert found.randomness == ("r; local reports simulated" if drawn else "r")


def test_one_report_told_in_two_receipts_is_one_promise_the_larger() -> None:
    parts = {
        name: build_receipt(NOISE, Protection(PureDP(e), name), assumes=[], rng=COIN)
        for name, e in (("a", 0.5), ("b", 2.0))
    }
    assert levels(one_receipt(parts, once=("local",))) == {
        ("trusted", CURATOR): None,
        ("trusted", VIEWER): 1.0,
        ("local", CURATOR): 2.0,
        ("local", VIEWER): 2.0,
    }
    assert levels(one_receipt(parts))["local", VIEWER] == 2.5
