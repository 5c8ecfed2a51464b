"""Regression of a target on several columns, from a collection of rows to a published release.

1. Everyone may know: the bounds of every column, the trusted group's noise, the kinds of questions.
2. The ledger is charged, before any row is read.
3. The curator adds up the trusted people's products (a logistic regression: scores, in rounds) and adds noise.
4. From that release and public numbers follows the question to local people: about all products (plain), or only about
   the score at the trusted people's line (steered), whichever promises less error. It can travel as an invitation
   (`hybridp.protocols.regression_files`); in a trial local rows answer here.
5. Each local person's device answers once, with its whole epsilon (`hybridp.device.stated`).
6. The blend combines, the release states coefficients, intervals and the receipt. No further privacy is spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import regression as blending
from hybridp.blend.regression import Fit, Score, Units
from hybridp.curator import regression as curating
from hybridp.curator.sources import TableLike
from hybridp.curator.vector import VectorColumns
from hybridp.device.stated import answer_question
from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.ledger import Charge, Ledger, together
from hybridp.protocols.paying import kept, on_reports, paid_rows
from hybridp.public.budgets import ApproxDP, PureDP, promised, split_off
from hybridp.public.errorlaw import holm
from hybridp.public.lattice import NOTHING, column_sums
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.personal import LOCAL_MOST
from hybridp.public.regression import (
    KINDS,
    MOST_PREDICTORS,
    ROUNDS,
    UNIT,
    KindName,
    NoisyRounds,
    Question,
    Trusted,
    rounds_noise,
    scale_noise,
    scale_share,
)
from hybridp.public.trust import drawn_trust
from hybridp.public.vector import VectorBounds, VectorNoiseName, VectorReportSums
from hybridp.randomness import Randomness, secure
from hybridp.release.answers import GroupEstimate, several_release
from hybridp.release.receipt import (
    Protection,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    honest_devices,
    noted,
    plain,
    public_choice,
    values_rule,
)
from hybridp.release.release import Release
from hybridp.tasks.protections import drawn, noise_level

__all__ = ["FORMS", "FormName", "RegressionStudy", "publish_regression", "release_people", "release_regression"]
__all__ += ["enough_people", "rows_rule", "trusted_rounds"]

Guarantee = PureDP | ApproxDP
Floats = NDArray[np.float64]
FormName = Literal["best", "steered", "plain", "tcm-only"]
FORMS: tuple[FormName, ...] = ("best", "steered", "plain", "tcm-only")


@dataclass(frozen=True)
class RegressionStudy:
    """Everything that is decided, and public, before anybody sends anything.

    `bounds` are those of the predictors and, last, of the target. `form` is the question to local people, `best` the
    one that promises less error. `clip` is how far from the trusted people's line a target may lie before it is
    clipped, in the target's unit, for a steered linear regression; without it, it follows from their release, to which
    a part of their epsilon goes (2 to 7 %) where that pays. `joint` asks for intervals that cover all coefficients
    together.
    """

    bounds: VectorBounds
    guarantee: Guarantee
    kind: KindName = "linear"
    form: FormName = "best"
    noise: VectorNoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    clip: float | None = None
    level: float = 0.95
    joint: bool = False

    def __post_init__(self) -> None:
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        must(self.kind in KINDS, "kind", f"must be one of {', '.join(KINDS)}", self.kind)
        must(self.form in FORMS, "form", f"must be one of {', '.join(FORMS)}", self.form)
        d = self.bounds.dimensions - 1
        must(1 <= d <= MOST_PREDICTORS, "on", f"must name 1 to {MOST_PREDICTORS} columns", d)
        must(self.bounds.norm is None, "norm", "must be left out for a regression", self.bounds.norm)
        if self.kind == "logistic":
            last = self.bounds.bounds[-1]
            ok = (last.lower, last.upper) == (0, 1)
            must(ok, "upper", "must bound the target of a logistic regression by 0 and 1",
                 f"{last.lower:g} and {last.upper:g}")  # fmt: skip
            must(self.form != "plain", "form", "must not be plain for a logistic regression: its steps need answers "
                 "about other lines, and a person answers once", self.form)  # fmt: skip
        ok = self.clip is None or 0 < self.clip < float("inf")
        must(ok, "clip", "must be positive", self.clip)
        must(self.clip is None or self.kind == "linear", "clip", "must go with a linear regression", self.clip)
        # A promise that no mechanism can keep is refused here, before a ledger is made for it.
        self.charges("", None, self.trusted(1, 10**12 if self.guarantee.epsilon <= LOCAL_MOST else 0))

    @cached_property
    def whole(self) -> Trusted:
        """All of the trusted people's promise for their sums."""
        return Trusted(self._noise(self.trusted_guarantee or self.guarantee))

    def split(self, share: float) -> Trusted:
        """A part of it for the scale of residuals."""
        rest, part = split_off(self.trusted_guarantee or self.guarantee, share)
        return Trusted(self._noise(rest), scale_noise(part))

    @property
    def _may_split(self) -> bool:
        return self.kind == "linear" and self.form in ("best", "steered") and self.clip is None

    def _noise(self, budget: Guarantee) -> DiscreteLaplace | DiscreteGaussian:
        return rounds_noise(budget, self.kind, self.bounds.dimensions - 1, self.noise)

    def trusted(self, trusted_people: int, local_people: int) -> Trusted:
        """How the trusted people are protected, from public numbers alone.

        Their residuals are looked at where a steered question then tells more than they do: where the variance of
        its mean score, for a clip of .75, is below that of their own score's noise.
        """
        share = scale_share(trusted_people, (self.trusted_guarantee or self.guarantee).epsilon)
        if not (self._may_split and share and local_people):
            return self.whole
        own = 1.5 * self.whole.noise.variance / (UNIT * trusted_people) ** 2
        return self.split(share) if 0.75**2 * self._told(local_people) < own else self.whole

    def _told(self, local_people: int) -> float:
        """The variance of local people's mean score, for a clip of 1 and scores that are small beside it."""
        p = self.bounds.dimensions
        asked = Question(self.kind, "steered", self.bounds, PureDP(self.guarantee.epsilon), (0.0,) * p, 1.0)
        return asked.invite.reports.cost(0.1) / max(local_people, 1)

    def charges(self, purpose: str, collection: str | None, trusted: Trusted) -> list[Charge]:
        """What the ledger will be asked for. Gaussian noise composes as one draw, over all sums and rounds."""
        kind = noise_level(trusted.noise)[0]
        composes = drawn(trusted.noise) if kind == "gaussian" else None
        found = [Charge("trusted", trusted.noise.guarantee, f"{kind} noise on the sums", purpose, noise=composes)]
        if trusted.scale is not None:
            found.append(Charge("trusted", trusted.scale.guarantee, "noisy scale of the residuals", purpose))
        if self.form == "tcm-only":
            return found
        return [*found, Charge("local", PureDP(self.guarantee.epsilon), "report", purpose, collection=collection)]

    def charges_at_most(self, purpose: str) -> list[Charge]:
        """The same before the groups' sizes have decided how trusted people are protected: enough for either way."""
        whole = self.charges(purpose, None, self.whole)
        if not self._may_split:
            return whole
        ways = [whole, self.charges(purpose, None, self.split(0.07))]
        own = [together([c for c in way if c.people == "trusted"], purpose)[0].budget for way in ways]
        epsilon, delta = max(b.epsilon for b in own), max(b.delta for b in own)
        most = promised(epsilon, delta, own[0].neighbours)
        text = "noise on the sums, and on the scale of the residuals where that pays"
        return [Charge("trusted", most, text, purpose), *(c for c in whole if c.people == "local")]

    def question(
        self,
        form: Literal["plain", "steered"],
        score: Score | None,
        local_people: int,
        columns: tuple[str, ...] = (),
        place: int | None = None,
    ) -> Question:
        """The question of this form to local people, given what the trusted people said."""
        promise = PureDP(self.guarantee.epsilon)
        if form == "plain" or score is None:
            return Question(self.kind, "plain", self.bounds, promise, columns=columns)
        half = self.bounds.bounds[-1].half
        told = self._told(local_people)
        clip = blending.clip_for(self.kind, score, place, told) if self.clip is None else self.clip / half
        return Question(
            self.kind, "steered", self.bounds, promise, tuple(score.fit().beta.tolist()), clip, columns=columns
        )

    def choose(
        self, said: NoisyRounds | None, local_people: int, columns: tuple[str, ...] = ()
    ) -> tuple[Question | None, dict[str, float]]:
        """The question to ask, and the root mean squared error that each way promises (unit coordinates)."""
        if self.form == "tcm-only" or not local_people:
            return None, {}
        forms: list[Literal["plain", "steered"]] = ["steered", "plain"] if self.kind == "linear" else ["steered"]
        if self.form in ("steered", "plain"):
            forms = [form for form in forms if form == self.form]
        if said is None:
            if "plain" not in forms:
                raise UnusablePublicRows(
                    "`trust` must leave somebody trusted: only they can say where a line lies that local people are "
                    "asked about. Got nobody."
                )
            return self.question("plain", None, local_people, columns), {}
        score, place = blending.trusted_score(said), said.place
        asked: dict[str, Question] = {form: self.question(form, score, local_people, columns, place) for form in forms}
        expected = {name: fit.mse**0.5 for name, fit in blending.forecast(score, asked, local_people).items()}
        return asked[min(forms, key=lambda form: (expected[form], form))], expected


# --- the conversation -------------------------------------------------------------------------------------------------


def trusted_rounds(
    study: RegressionStudy, rows: curating.PeopleRows, trusted: Trusted, *, rng: Randomness
) -> NoisyRounds | None:
    """What the trusted people say, in as many rounds as the kind has; None where there is nobody."""
    if not rows.trusted:
        return None
    noise, said = trusted.noise, None
    centre: tuple[float, ...] = () if study.kind == "linear" else (0.0,) * study.bounds.dimensions
    for _ in range(ROUNDS[study.kind]):
        totals = curating.release_round(rows, study.kind, noise, centre, rng=rng)
        before = ((), ()) if said is None else (said.totals, said.centres)
        said = NoisyRounds(study.kind, rows.trusted, (*before[0], totals), noise, (*before[1], centre))
        centre = blending.newton(said) if study.kind == "logistic" else ()
    if said is not None and trusted.scale is not None:
        score = blending.trusted_score(said)
        line, first = tuple(score.fit().beta.tolist()), blending.widest(score)
        said = replace(said, place=curating.release_scale(rows, line, first, trusted.scale, rng=rng))
    return said


def enough_people(study: RegressionStudy, people: int) -> None:
    """Refuse fewer people than coefficients, who are counted and public, before anything is charged."""
    p = study.bounds.dimensions
    must(people >= p, "people", f"must be at least as many as the coefficients ({p}, with the intercept)", people)


def _answers(rows: curating.PeopleRows, question: Question, *, rng: Randomness) -> VectorReportSums:
    """For a trial: local people's reports, drawn here by the code of the devices."""
    people, sums = 0, (NOTHING,) * question.invite.bounds.dimensions
    for steps in rows.parts("local"):
        more = column_sums(answer_question(steps, question, rng=rng))
        people, sums = people + len(steps), tuple(a + b for a, b in zip(sums, more, strict=True))
    return VectorReportSums.of(people, sums, question.invite.reports)


def release_regression(
    path: TableLike,
    study: RegressionStudy,
    columns: VectorColumns,
    *,
    table: str | None = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
    purpose: str = "regression",
    collection: str | None = None,
    rng: Randomness | None = None,
) -> Release:
    """Release the coefficients of a table in one go: local rows are raw and report here, which is a trial.

    `columns.values` names the predictors and, last, the target. Trusted people: the study's guarantee against whoever
    sees the release, under replacement of one person's row, one record a person. Local people: the guarantee of their
    own report, against everyone. Without `simulate_local` a table with local rows is refused: what they are asked
    depends on the trusted people's release, which the invitation brings them (`regression_files.write_invitation`).
    """
    rng = secure() if rng is None else rng
    simulate_local = simulate_local or drawn_trust(columns.trust)
    d = study.bounds.dimensions
    must(len(columns.values) == d, "columns", f"must be as many as the bounds ({d})", len(columns.values))
    trial = rng.simulated or simulate_local

    def asked(trusted: Trusted) -> list[Charge]:
        charges = study.charges(purpose, collection, trusted)
        heard = charges if simulate_local else [c for c in charges if c.people == "trusted"]
        return on_reports(heard, trial=simulate_local)[0]

    # Who is in which group is public, and decides how the promise is spent; no value is read before the charge.
    most = asked(study.whole)
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    opened |= {"reads": {"columns": columns.values}, "missing": columns.absent, "raw": simulate_local}
    with paid_rows(path, most, [], ledger, undecided=True, trial=trial, **opened) as (rows, entries, counted):
        assert counted is not None
        enough_people(study, counted.trusted + counted.local)
        trusted = study.trusted(counted.trusted, counted.local)
        entries.charge(asked(trusted))
        people = curating.TableRows.read(rows, columns, study.bounds, local_raw=simulate_local)
        rule = rows_rule(study, columns)
        found = _run(study, people, columns.values, trusted, entries=tuple(entries), rows=rule, rng=rng)
        found = noted(found, rows.notes)
        return kept(found, ledger, entries, purpose=purpose, study=study, columns=columns)


def release_people(
    study: RegressionStudy, trusted: Floats, local: Floats, names: tuple[str, ...], *, rng: Randomness
) -> Release:
    """The same for arrays, a row a person, the target last; what is not a number is in the middle. A trial."""

    def steps(rows: Floats) -> NDArray[np.int64]:
        middle = np.array([b.centre for b in study.bounds.bounds])
        return study.bounds.steps(np.where(np.isnan(rows), middle, rows))

    people = curating.People(steps(trusted), steps(local))
    trusted_as = study.trusted(people.trusted, people.local)
    return _run(study, people, names, trusted_as, rows=values_rule(), rng=rng)


def _run(
    study: RegressionStudy,
    people: curating.PeopleRows,
    names: tuple[str, ...],
    trusted: Trusted,
    *,
    entries: tuple[int, ...] = (),
    rows: str,
    rng: Randomness,
) -> Release:
    must(people.trusted + people.local >= 1, "people", "must be at least 1", 0)
    if people.local and study.form != "tcm-only":
        people.parts("local")  # refused where nobody asked them, before anything is drawn
    said = trusted_rounds(study, people, trusted, rng=rng)
    asked, expected = study.choose(said, people.local, names)
    sums = None if asked is None else _answers(people, asked, rng=rng)
    return publish_regression(
        study,
        names,
        trusted,
        said,
        asked,
        sums,
        expected=expected,
        local_people=people.local,
        entries=entries,
        simulated_local=sums is not None and sums.people > 0,
        rows=rows,
        randomness=rng.label,
        seeded=rng.simulated,
    )


def rows_rule(study: RegressionStudy, columns: VectorColumns) -> str:
    """How fields become numbers, for the receipt."""
    rule = values_rule(columns.counts_as(study.bounds))
    return rule if study.kind == "linear" else f"{rule}; a target above one half counts as 1, and any other as 0"


# --- publishing -------------------------------------------------------------------------------------------------------


def publish_regression(
    study: RegressionStudy,
    names: tuple[str, ...],
    trusted: Trusted,
    said: NoisyRounds | None,
    asked: Question | None,
    sums: VectorReportSums | None,
    *,
    expected: dict[str, float],
    local_people: int,
    entries: tuple[int, ...] = (),
    simulated_local: bool = False,
    rows: str = "",
    randomness: str,
    seeded: bool,
) -> Release:
    """Blend what the groups said and state what was promised. Post-processing: no rows, no noise."""
    score = None if said is None else blending.trusted_score(said)
    if sums is not None and not sums.people:
        sums = None
    if score is not None and asked is not None and sums is not None:
        score = blending.spread_as_told(score, sums, asked)
    own = None if score is None else score.fit()
    found = study.kind == "linear" and study.clip is None
    both, told, apart = blending.blend_groups(score, asked, sums, blending.LEAN if found else 0.0)
    if both is None:
        raise InvalidInput("`people` must be enough for a regression: some statistic has fewer than two reports.")
    p_values = None
    if own is not None and told is not None and apart is not None and not (own.weak or told.weak):
        from scipy.special import ndtr

        away = np.abs(told.beta - own.beta) / np.sqrt(np.maximum(np.diag(apart), 1e-300))
        p_values = holm(np.minimum(2 * ndtr(-away), 1.0).tolist())
    from scipy.special import ndtri

    units = Units.of(study.bounds, study.kind)
    centre, errors = units.fit(both)
    missed = (1 - study.level) / (len(errors) if study.joint else 1)  # by each interval, at most
    wide = float(-ndtri(missed / 2)) * errors
    trusted_people = 0 if said is None else said.people
    used = asked is not None and sums is not None
    mine = _group(units, trusted_people, own)
    others = _group(units, sums.people if sums is not None else local_people, told)
    apart_by = None
    if own is not None and told is not None:
        apart_by = plain(_numbers(units.fit(own)[0] - units.fit(told)[0]))
    steered = used and asked is not None and asked.form == "steered"
    return several_release(
        names[-1],
        "regression",
        "regression",
        ("columns", ("intercept", *names[:-1])),
        estimate=plain(_numbers(centre)),
        interval=(plain(_numbers(centre - wide)), plain(_numbers(centre + wide))),
        trusted=mine,
        local=others,
        differences=apart_by,
        widths=None,
        p_values=p_values,
        level=study.level,
        mechanisms=(
            noise_level(trusted.noise)[0] if said is not None else "none",
            asked.invite.reports.name if used and asked is not None else "none",
        ),
        kind=study.kind,
        form=asked.form if used and asked is not None else "tcm-only",
        joint=study.joint,
        standard_error=plain(_numbers(errors)),
        expected={name: error for name, error in expected.items() if np.isfinite(error)},
        clip=asked.clip * units.target if steered and asked is not None else None,
        noisy_totals=[] if said is None else [list(row) for row in said.totals],
        noisy_place=None if said is None else said.place,
        receipt=build_receipt(
            None if said is None else _trusted_protection(study, trusted),
            _local_protection(asked) if used and asked is not None else None,
            assumes=(
                public_choice(),
                choice_unprotected(),
                chosen_blindly(),
                honest_devices("a local mean"),
                _clipped(asked, units) if used else "",
                "trusted people's sampling error takes residuals to vary alike everywhere, unless reports show more",
                rows,
            ),
            randomness=randomness,
            seeded=seeded,
            simulated_local=simulated_local,
            unit="one person, one record, all of its columns",
            entries=entries,
        ),
    )


def _group(units: Units, people: int, found: Fit | None) -> GroupEstimate:
    if found is None:
        return GroupEstimate(people)
    beta, errors = units.fit(found)
    return GroupEstimate(people, plain(_numbers(beta)), plain(_numbers(errors)))


def _numbers(x: Floats) -> tuple[float, ...]:
    return tuple(float(v) for v in x)


def _clipped(asked: Question | None, units: Units) -> str:
    if asked is None or asked.form == "plain" or asked.kind == "logistic":
        return ""
    reach = asked.clip * units.target
    return f"a local target farther than {reach:.6g} from the trusted people's line counts as that far from it"


def _trusted_protection(study: RegressionStudy, trusted: Trusted) -> Protection:
    kind, size = noise_level(trusted.noise)
    what = "each sum of products" if study.kind == "linear" else f"each sum of {ROUNDS[study.kind]} rounds"
    ball = "L2" if kind == "gaussian" else "L1"
    text = f"discrete {kind} noise on {what}, {size:.6g} times their {ball} sensitivity"
    budget: Guarantee = trusted.noise.guarantee
    if trusted.scale is not None:
        part = trusted.scale.guarantee.epsilon
        text += f" (epsilon {budget.epsilon:g}), and the scale of residuals by report noisy max (epsilon {part:g})"
        promised = study.trusted_guarantee or study.guarantee
        budget = replace(promised, delta=budget.delta) if isinstance(promised, ApproxDP) else promised
    return Protection(budget, text)


def _local_protection(asked: Question) -> Protection:
    about = "the score at the trusted people's line" if asked.form == "steered" else "all products"
    device = f"{asked.invite.reports.name} report on {about}, on their own device"
    return Protection(asked.guarantee, device, "no amplification is claimed")
