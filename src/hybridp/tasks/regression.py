"""Regression of a target on several columns.

1. Everyone may know: the bounds of every column, the trusted group's noise, the kinds of questions.
2. The curator adds up the trusted people's products (a logistic regression: scores, in rounds) and adds noise.
3. From that release and public numbers follows the question to local people: about all products (plain), or only about
   the score at the trusted people's line (steered), whichever promises less error.
4. Each local person's device answers once, with its whole epsilon (`hybridp.device.reports`).
5. The blend combines, the release states coefficients, intervals and the receipt. No further privacy is spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import regression as blending
from hybridp.blend.regression import Fit, Score, Units
from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.public.budgets import ApproxDP, Charge, PureDP, split_off
from hybridp.public.mean import holm
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, NoiseName
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
from hybridp.public.rounds import Conversation, Crowd, Later, Products, Scale
from hybridp.public.study import Declaration, Regression
from hybridp.public.vector import VectorBounds, VectorReportSums
from hybridp.release.receipt import Made, Protection, plain
from hybridp.release.release import GroupEstimate, Release, answer, gap_facts
from hybridp.tasks.task import Draw, Task, declared, noise_level, protected, task_receipt, undecided

__all__ = ["FORMS", "FormName", "RegressionTask", "regression_task"]

Guarantee = PureDP | ApproxDP
Floats = NDArray[np.float64]
FormName = Literal["best", "steered", "plain", "tcm-only"]
FORMS: tuple[FormName, ...] = ("best", "steered", "plain", "tcm-only")


@dataclass(frozen=True)
class RegressionTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `bounds` are those of the predictors and, last, of the target. `form` is the question to local people, `best` the
    one that promises less error. `clip` is how far from the trusted people's line a target may lie before it is
    clipped, in the target's unit, for a steered linear regression; without it, it follows from their release, to which
    a part of their epsilon goes (2 to 7 %) where that pays. `joint` asks for intervals that cover all coefficients
    together. `people` are the sizes of the groups, trusted and local, which decide how the promise is spent.
    """

    called = "regression"
    undecided = True

    bounds: VectorBounds
    guarantee: Guarantee
    kind: KindName = "linear"
    form: FormName = "best"
    noise: NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    clip: float | None = None
    level: float = 0.95
    joint: bool = False
    people: tuple[int, int] | None = None

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
        self._spent(self.trusted(1, 10**12 if self.guarantee.epsilon <= LOCAL_MOST else 0), "")

    @cached_property
    def whole(self) -> Trusted:
        """All of the trusted people's promise for their sums."""
        return Trusted(self._noise(self.trusted_whole))

    def split(self, share: float) -> Trusted:
        """A part of it for the scale of residuals."""
        rest, part = split_off(self.trusted_whole, share)
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
        share = scale_share(trusted_people, (self.trusted_whole).epsilon)
        if not (self._may_split and share and local_people):
            return self.whole
        own = 1.5 * self.whole.noise.variance / (UNIT * trusted_people) ** 2
        return self.split(share) if 0.75**2 * self._told(local_people) < own else self.whole

    def _told(self, local_people: int) -> float:
        """The variance of local people's mean score, for a clip of 1 and scores that are small beside it."""
        p = self.bounds.dimensions
        asked = Question(self.kind, "steered", self.bounds, PureDP(self.guarantee.epsilon), (0.0,) * p, 1.0)
        return asked.invite.mechanism.cost(0.1) / max(local_people, 1)

    @cached_property
    def protected(self) -> Trusted:
        """How these trusted people are protected."""
        return self.whole if self.people is None else self.trusted(*self.people)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for. Gaussian noise composes as one draw, over all sums and rounds.

        Before the groups' sizes have decided how trusted people are protected: enough for either way.
        """
        result = self._spent(self.protected, purpose)
        if self.people is None and self._may_split:
            ways = [result, self._spent(self.split(0.07), purpose)]
            text = "noise on the sums, and on the scale of the residuals where that pays"
            result = undecided(self.trusted_whole, ways, purpose, text)
        if self.form == "tcm-only":
            return result
        return [*result, Charge("local", PureDP(self.guarantee.epsilon), "report", purpose, collection=collection)]

    def _spent(self, trusted: Trusted, purpose: str) -> list[Charge]:
        result = [Draw("the sums", trusted.noise, several=True).charge(purpose)]
        if trusted.scale is not None:
            result.append(Charge("trusted", trusted.scale.guarantee, "noisy scale of the residuals", purpose))
        return result

    @property
    def by_invitation(self) -> bool:  # type: ignore[override]
        return self.form != "tcm-only"

    def prepared(self, columns: Any) -> RegressionTask:
        d = self.bounds.dimensions
        must(len(columns.names) == d, "columns", f"must be as many as the bounds ({d})", len(columns.names))
        return self

    def check_inviting(self, *, trial: bool) -> None:
        super().check_inviting(trial=trial)
        must(self.by_invitation, "form", "must not be tcm-only with an invitation to local people", self.form)

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> RegressionTask:
        p = self.bounds.dimensions
        rule = f"must be at least as many as the coefficients ({p}, with the intercept)"
        must(trusted + local >= p, "people", rule, trusted + local)
        return replace(self, people=(trusted, local))

    def ask(self, crowd: Crowd) -> Conversation:
        """What the trusted people say, in as many rounds as the kind has; then what local people are asked."""
        assert self.people is not None
        (people, local), noise, scale, said = self.people, self.protected.noise, self.protected.scale, None
        centre: tuple[float, ...] = () if self.kind == "linear" else (0.0,) * self.bounds.dimensions
        for _ in range(ROUNDS[self.kind] if people else 0):
            totals = yield Products(self.kind, self.bounds, noise, centre)
            before = ((), ()) if said is None else (said.totals, said.centres)
            said = NoisyRounds(self.kind, people, (*before[0], totals), noise, (*before[1], centre))
            centre = blending.newton(said) if self.kind == "logistic" else ()
        if said is not None and scale is not None:
            score = blending.trusted_score(said)
            place = yield Scale(self.bounds, tuple(score.fit().beta.tolist()), blending.widest(score), scale)
            said = replace(said, place=place)
        asked, expected = self.choose(said, local, crowd.names)
        got = None
        if asked is not None:
            told: dict[str, Any] = {"form": asked.form, "centre": asked.centre, "clip": asked.clip}
            told |= {"trusted_people": people, "local_people": local}
            got = yield Later(asked, about={**told, "expected": {k: e for k, e in expected.items() if np.isfinite(e)}})
        sums = None if got is None else got.local
        rows = crowd.rows(self.bounds)
        if self.kind == "logistic":
            rows += "; a target above one half counts as 1, and any other as 0"
        return _publish(self, crowd.names, said, asked, sums, expected, local, rows, **crowd.made())

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


# --- publishing -------------------------------------------------------------------------------------------------------


def _publish(
    study: RegressionTask,
    names: tuple[str, ...],
    said: NoisyRounds | None,
    asked: Question | None,
    sums: VectorReportSums | None,
    expected: dict[str, float],
    local_people: int,
    rows: str,
    **made: Unpack[Made],
) -> Release:
    """Blend what the groups said and state what was promised. Post-processing: no rows, no noise."""
    trusted = study.protected
    score = None if said is None else blending.trusted_score(said)
    if sums is not None and not sums.people:
        sums = None
    if score is not None and asked is not None and sums is not None:
        score = blending.spread_as_told(score, sums, asked)
    own = None if score is None else score.fit()
    result = study.kind == "linear" and study.clip is None
    both, told, apart = blending.blend_groups(score, asked, sums, blending.LEAN if result else 0.0)
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
    columns = ["intercept", *names[:-1]]
    facts = answer(
        "regression",
        plain(_numbers(centre)),
        (plain(_numbers(centre - wide)), plain(_numbers(centre + wide))),
        {"trusted": mine, "local": others},
        gap_facts("columns", columns, study.level, apart_by, None, p_values),
        (
            noise_level(trusted.noise)[0] if said is not None else "none",
            asked.invite.mechanism.name if used and asked is not None else "none",
        ),
        columns=columns,
        kind=study.kind,
        form=asked.form if used and asked is not None else "tcm-only",
        joint=study.joint,
        standard_error=plain(_numbers(errors)),
        expected={name: error for name, error in expected.items() if np.isfinite(error)},
        clip=asked.clip * units.target if steered and asked is not None else None,
        noisy_totals=[] if said is None else [list(row) for row in said.totals],
        noisy_place=None if said is None else said.place,
    )
    return Release(
        {names[-1]: {"regression": facts}},
        study.level,
        task_receipt(
            None if said is None else _trusted_protection(study, trusted),
            _local_protection(asked) if used and asked is not None else None,
            "everyone",
            _clipped(asked, units) if used else "",
            "trusted people's sampling error takes residuals to vary alike everywhere, unless reports show more",
            moves="a local mean",
            rows=(rows,),
            unit="one person, one record, all of its columns",
            **made,
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


def _trusted_protection(study: RegressionTask, trusted: Trusted) -> Protection:
    what = "each sum of products" if study.kind == "linear" else f"each sum of {ROUNDS[study.kind]} rounds"
    beside = "" if trusted.scale is None else (
        f", and the scale of residuals by report noisy max (epsilon {trusted.scale.guarantee.epsilon:g})"
    )  # fmt: skip
    return protected(study.trusted_whole, Draw(what, trusted.noise, several=True), beside=beside)


def _local_protection(asked: Question) -> Protection:
    about = "the score at the trusted people's line" if asked.form == "steered" else "all products"
    device = f"{asked.invite.mechanism.name} report on {about}, on their own device"
    return Protection(asked.promise, device, "no amplification is claimed")


def regression_task(study: Declaration, place: int) -> RegressionTask:
    """The regression that is asked for at this place among the questions."""
    asked = cast(Regression, study.questions[place])
    bounds = VectorBounds.of(asked.lower, asked.upper)
    return declared(RegressionTask, study, place, bounds=bounds, kind=asked.model)
