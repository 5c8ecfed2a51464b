"""Tallies: the laws of merging, to the bit, for every kind; a bounded state; what is refused."""

from __future__ import annotations

import copy
import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reports import randomise_many

from hybridp.blend import mean as personal_blending
from hybridp.blend.mean import Rule, blend, blend_columns
from hybridp.blend.tally import Tally, invite_in
from hybridp.device.reports import randomise_own, randomise_steps
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.envelope import digest
from hybridp.public.heavy import HeadList, slot_response
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite, OwnEpsilon, VectorBounds
from hybridp.public.randomisers import (
    LOCAL_NAMES,
    STEPS,
    Bounds,
    Sums,
    exact_sums,
    grouped_sums,
    piecewise,
    randomiser,
    vector_reports,
)

BOUNDS = Bounds(-3, 57)
INVITE = Invite(BOUNDS, randomiser("best", PureDP(1.0)))
OWN = Invite(BOUNDS, OwnEpsilon())
BOX = VectorBounds.of([0, -1, 100], [10, 1, 100_000])
MANY = Invite(BOX, vector_reports("sampling", PureDP(3.0), 3, BOX.ratio))


# --- exact sums ---


@settings(deadline=None)
@given(st.lists(st.floats(-(2.0**22), 2.0**22), max_size=40), st.integers(1, 300))
def test_sums_are_those_of_rational_arithmetic(values: list[float], times: int) -> None:
    found = exact_sums(np.tile(np.array(values, dtype=np.float64), times))
    steps = [round(Fraction(v) * STEPS) for v in values]
    assert found == Sums(times * len(values), times * sum(steps), times * sum(x * x for x in steps))
    assert found.moments == (times * sum(steps) / STEPS, times * sum(x * x for x in steps) / STEPS**2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**22 + 1, -1e300])
def test_what_no_device_sends_is_not_added_up(value: float) -> None:
    with pytest.raises(InvalidInput, match="`reports` must be finite"):
        exact_sums(np.array([0.5, value]))


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=5), min_size=1, max_size=8))
def test_groups_are_added_apart(parts: list[list[float]]) -> None:
    keys = [float(key) for key, part in enumerate(parts) for _ in part]
    found = grouped_sums(np.array([v for part in parts for v in part]), np.array(keys))
    assert found == tuple((float(key), exact_sums(np.array(part))) for key, part in enumerate(parts))


def test_the_sum_of_doubles_would_tell_the_order() -> None:
    """The control: what is not exact fails the law."""
    x = np.random.default_rng(5).standard_normal(1001) * 1e5
    halves = float(np.sum(x[:500])) + float(np.sum(x[500:]))
    turned = float(np.sum(x[::-1]))
    assert len({float(np.sum(x)), halves, turned}) > 1


# --- every kind ---


@dataclass(frozen=True)
class Kind:
    """An empty tally, reports for it (one a row), and an estimate that uses them."""

    empty: Tally
    rows: np.ndarray[Any, Any]
    estimate: Callable[[Any], Any]

    def add(self, tally: Tally, rows: np.ndarray[Any, Any], batch: str | None = None, **how: bool) -> Tally:
        told = np.bincount(rows, minlength=7) if tally.kind == "slots" else rows
        return (tally if batch is None else tally.named(batch, **how)).add(told)


def _mean() -> Kind:
    sent = randomise_many(np.linspace(0, 50, 200), INVITE, rng=seeded(1))
    return Kind(
        Tally.of(INVITE, "spring"),
        sent,
        lambda tally: blend(None, tally.summary().columns[0], Rule("lm-only")),
    )


def _vector() -> Kind:
    values = np.random.default_rng(2).uniform(BOX.from_unit(np.full(3, -1.0)), BOX.from_unit(np.ones(3)), (200, 3))
    return Kind(
        Tally.of(replace(MANY, question=("a", "b", "c")), "spring"),
        randomise_steps(MANY.encoding.steps(values), MANY, rng=seeded(2)),
        lambda tally: blend_columns(None, [tally.summary()], Rule("lm-only"), BOX.reach),
    )


def _personal() -> Kind:
    epsilons = np.resize([0.0, 0.5, 3.0, math.inf, 1e-4], 200)
    sent = randomise_own(BOUNDS.levels(np.linspace(0, 50, 200)), epsilons, BOUNDS, rng=seeded(3))
    return Kind(
        Tally.of(OWN, "spring"),
        np.stack([sent, epsilons], axis=1),
        lambda tally: personal_blending.combine(
            None, np.zeros(0), tally.summary(), personal_blending.learn_variance(tally.summary())
        ),
    )


def _list(answers: str, slots: int) -> Invite[Any, Any]:
    head = HeadList.of([(str(i),) for i in range(slots - 1)])
    return Invite(head, slot_response(PureDP(1.0), slots), answers=answers)


def _slots() -> Kind:
    return Kind(
        Tally.of(_list("0123456789abcdef", 7), "spring"),
        np.random.default_rng(4).integers(0, 7, 200),
        lambda tally: tuple(tally.summary().counts.tolist()),
    )


KINDS = {"mean": _mean(), "vector": _vector(), "personal": _personal(), "slots": _slots()}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def _bits(found: Any) -> str:
    return json.dumps(found.to_dict())


@every_kind
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_split_of_any_order_is_one_add(kind: Kind, data: st.DataObject) -> None:
    rows = kind.rows[data.draw(st.permutations(range(len(kind.rows))).map(np.array))]
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=6).map(sorted))
    parts = [kind.add(kind.empty, part) for part in np.split(rows, cuts)]
    order = data.draw(st.permutations(parts))
    whole = kind.add(kind.empty, kind.rows)
    merged = reduce(operator.add, order)
    assert merged == whole
    assert _bits(merged) == _bits(whole)
    # One report after another, in the same state.
    grown = reduce(kind.add, np.split(rows, cuts), kind.empty)
    assert _bits(grown) == _bits(whole)
    assert repr(kind.estimate(merged)) == repr(kind.estimate(whole))


@every_kind
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_merging_is_associative_and_commutative_with_an_identity(kind: Kind, data: st.DataObject) -> None:
    def part(name: str) -> Any:
        rows = kind.rows[data.draw(st.lists(st.integers(0, 199), max_size=8).map(lambda i: np.array(i, dtype=int)))]
        return kind.add(kind.empty, rows, batch=name, simulated=data.draw(st.booleans()))

    a, b, c = part("a"), part("b"), part("c")
    assert _bits((a + b) + c) == _bits(a + (b + c))
    assert _bits(a + b) == _bits(b + a)
    assert _bits(a + kind.empty) == _bits(kind.empty + a) == _bits(a)
    assert (a + b).simulated == (a.simulated or b.simulated)
    assert (a + b + c).batches == {"a", "b", "c"}


@every_kind
def test_the_document_holds_everything(kind: Kind) -> None:
    for tally in (kind.empty, kind.add(kind.empty, kind.rows, batch="one", simulated=True)):
        found = Tally.from_dict(json.loads(json.dumps(tally.to_dict(), allow_nan=False)))
        assert found == tally
        assert found.people == tally.people


@every_kind
def test_the_state_does_not_grow_with_the_reports(kind: Kind) -> None:
    """500 times the reports add a few digits to each count and sum, and no entry."""
    few, many = (kind.add(kind.empty, np.repeat(kind.rows, times, axis=0)) for times in (1, 500))
    assert many.people == 500 * few.people
    assert len(_bits(many)) < len(_bits(few)) * 1.3
    grown = few
    for _ in range(30):
        grown = grown + grown
    assert grown.people == 2**30 * few.people
    assert len(_bits(grown)) < len(_bits(few)) * 2.5


# --- what is refused ---


def test_strangers_are_not_merged() -> None:
    mean = Tally.of(INVITE)
    other = Tally.of(Invite(BOUNDS, randomiser("best", PureDP(2.0))))
    wider = Tally.of(Invite(Bounds(-3, 58), INVITE.mechanism))
    named = Tally.of(INVITE, "spring")
    slots = Tally.of(_list("one", 3))
    vectors = Tally.of(replace(MANY, question=("a", "b", "c")))
    for a, b, why in [
        (mean, other, "one mechanism"),
        (mean, wider, "one mechanism"),
        (mean, named, "the collection spring"),
        (named, Tally.of(INVITE, "autumn"), "autumn"),
        (mean, Tally.of(INVITE, sums_only=True), "sums only"),
        (mean, slots, "of one kind"),
        (slots, Tally.of(_list("two", 3)), "one mechanism"),
        (slots, replace(slots, counts=(0,) * 4), "same invitation"),
        (vectors, Tally.of(replace(MANY, question=("a", "b", "z"))), "one mechanism"),
        (Tally.of(OWN), Tally.of(Invite(Bounds(0, 1), OwnEpsilon())), "one mechanism"),
    ]:
        for one, two in ((a, b), (b, a)):
            with pytest.raises(InvalidInput, match=r"^[^.]*must[^.]*\. Got .*") as said:
                one + two
            assert why in str(said.value)


@pytest.mark.parametrize("reports", [[math.nan], [math.inf], [1e9], [[1.0]], [-1e9, 1.0]])
def test_reports_that_no_device_sends_are_refused(reports: Any) -> None:
    with pytest.raises(InvalidInput) as said:
        Tally.of(INVITE).add(reports)
    assert "1000000000" not in str(said.value)
    with pytest.raises(InvalidInput):
        Tally.of(OWN).add([[x, 1.0] for x in reports] if np.ndim(reports) == 1 else reports)


def test_more_reports_that_no_device_sends() -> None:
    personal, slots = Tally.of(OWN), Tally.of(_list("one", 3))
    far = BOUNDS.from_unit(2.5)  # within reach of epsilon 1, not of 8
    assert personal.add([[far, 1.0]]).people == 1
    for row in ([far, 8.0], [far, -1.0], [far, math.nan], [far, 1.0, 1.0]):
        with pytest.raises(InvalidInput):
            personal.add([row])
    for counts in ([1, -1, 0], [1, 0]):
        with pytest.raises(InvalidInput):
            slots.add(np.array(counts))
    vectors = Tally.of(replace(MANY, question=("a", "b", "c")))
    for told in ([math.nan] * 3, [1.0, 0.0, 500.0], [1e9, math.nan, math.nan], [math.inf, math.nan, math.nan], [1.0]):
        with pytest.raises(InvalidInput):
            vectors.add([told])


def _changes(document: Any) -> list[Any]:
    """Documents that differ in one leaf, each in a way that nothing honest could."""
    out = []

    def walk(here: Any, path: tuple[Any, ...]) -> None:
        inside = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        for key, value in inside:
            walk(value, (*path, key))
        if isinstance(here, bool) or not path:
            return
        wrong: list[Any] = []
        if isinstance(here, int):
            wrong = [-1, here + 1, str(here)]
        elif isinstance(here, float):
            wrong = [math.nan, 1e300, "x"]
        elif isinstance(here, str):
            wrong = ["x", here + "0", 5]
        for new in wrong:
            changed = copy.deepcopy(document)
            spot = changed
            for key in path[:-1]:
                spot = spot[key]
            spot[path[-1]] = new
            if path != ("digest",):  # whoever changes a document on purpose changes its digest too
                changed["digest"] = digest(changed)
            out.append((path, new, changed))

    walk(document, ())
    return out


@every_kind
def test_a_changed_document_is_refused(kind: Kind) -> None:
    whole = kind.add(kind.empty, kind.rows, batch="one").to_dict()
    free = {"collection", "batches"}  # names: anything printable goes
    tried = 0
    for path, new, changed in _changes(whole):
        if path[0] in free and isinstance(new, str):
            continue
        if path[0] == "mechanism" and whole["kind"] == "slots" and isinstance(new, str):
            continue  # the text of an invitation, which the release compares
        if path[-1] in ("total", "squares") and isinstance(new, int):
            continue  # another number may still be a possible sum
        tried += 1
        with pytest.raises(InvalidInput):  # of a vector, where its invitation is known: a release states it
            replace(Tally.from_dict(changed), invite=kind.empty.invite)
    assert tried > 10


@every_kind
@pytest.mark.parametrize("what", [None, [], {}, "tally", 7, {"hybridp": "tally of device reports", "version": 1}])
def test_other_documents_are_refused(kind: Kind, what: Any) -> None:
    with pytest.raises(InvalidInput):
        Tally.from_dict(what)
    for changed in (
        {**kind.empty.to_dict(), "more": 1},
        {**kind.empty.to_dict(), "version": 2},
        {**kind.empty.to_dict(), "kind": "median"},
        {key: value for key, value in kind.empty.to_dict().items() if key != "batches"},
        {**kind.empty.to_dict(), "batches": ["b", "a"]},
        {**kind.empty.to_dict(), "batches": ["a\n"]},
        {**kind.empty.to_dict(), "collection": ""},
        {**kind.empty.to_dict(), "people": 10**30},
    ):
        with pytest.raises(InvalidInput):
            Tally.from_dict(changed | {"digest": digest(changed)})


def test_sums_that_no_numbers_have() -> None:
    good = exact_sums(np.array([1.0, 2.0, 4.0]))
    good.check_reach(4.0)
    for changed in (
        {"total": good.total + 2 * STEPS},  # beyond three times the squares
        {"squares": good.squares - 5 * STEPS**2},
        {"squares": -1},
        {"people": 0},
        {"people": -1},
        {"people": 3.0},
        {"total": str(good.total)},
    ):
        with pytest.raises(InvalidInput):
            replace(good, **changed)  # type: ignore[arg-type]
    for far in (replace(good, squares=49 * STEPS**2), replace(exact_sums(np.full(3, 4.1)))):
        with pytest.raises(InvalidInput, match="must lie where"):
            far.check_reach(4.0)


# --- texts lead back to mechanisms ---


@pytest.mark.parametrize("name", LOCAL_NAMES)
def test_a_text_describes_its_invitation(name: Any) -> None:
    for epsilon in (0.001, 0.3, 1.0, 7.25):
        invite = Invite(Bounds(-0.1, 1e6 / 3), randomiser(name, PureDP(epsilon)))
        assert invite_in(invite.text) == invite


def test_texts_that_describe_nothing() -> None:
    for text in (
        "", "dithered", f"{INVITE.text} SIMULATED", INVITE.text + " ", INVITE.text.replace("dithered", "coin"),
        INVITE.text.replace("1.0", "1"), INVITE.text.replace("1.0", "-1.0"), INVITE.text.replace("57.0", "nan"),
        INVITE.text.replace("57.0", "-57.0"), INVITE.text.replace("delta=0.0", "delta=0.5"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            invite_in(text)
    usual = piecewise(PureDP(1.0))
    odd = replace(usual, inside=usual.inside - 1)
    with pytest.raises(InvalidInput, match="its text describes"):
        Tally.of(Invite(BOUNDS, odd))


def test_a_vector_tally_of_other_bounds_than_its_text_says_is_refused() -> None:
    """Its reports would be read in another unit than the devices', with an error that nobody states."""
    kind, names = KINDS["vector"], ("a", "b", "c")
    read = Tally.from_dict(kind.add(kind.empty, kind.rows).to_dict())
    assert replace(read, invite=kind.empty.invite).add(kind.rows).people == 400
    wider, lower = VectorBounds.of([0, -1, 100], [20, 2, 200_000]), VectorBounds.of([-10, -2, -100], [10, 1, 100_000])
    for box, epsilon, columns in (
        (wider, 3.0, names), (lower, 3.0, names), (BOX, 9.0, names), (BOX, 3.0, ("a", "b", "z"))
    ):  # fmt: skip
        other = Invite(box, vector_reports("sampling", PureDP(epsilon), 3, box.ratio), columns)
        with pytest.raises(InvalidInput, match="must be that of the tally"):
            replace(read, invite=other)


@every_kind
def test_other_reports_with_equal_sums_are_another_set(kind: Kind) -> None:
    """What was charged is a set of reports: the same people may answer again, and their counts agree by chance."""

    def named(tally: Any) -> str:
        return str(tally.digest)

    one, two = (kind.add(kind.empty, kind.rows, batch=name) for name in ("monday", "tuesday"))
    assert named(one) != named(two)
    half = len(kind.rows) // 2
    parts = [
        kind.add(kind.empty, rows, batch=name) for rows, name in ((kind.rows[:half], "a"), (kind.rows[half:], "b"))
    ]
    assert named(reduce(operator.add, parts)) == named(reduce(operator.add, reversed(parts))) != named(one)
    assert named(replace(one, collection=None)) == named(one)
