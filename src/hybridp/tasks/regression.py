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
from typing import Any, Literal, cast

import numpy as np

from hybridp.blend import regression as blending
from hybridp.blend.regression import Fit, Score, Units
from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.public import regression as rules
from hybridp.public.mechanisms import AddedNoise, Charge, Guarantee, NoiseName, PureDP, split_off
from hybridp.public.messages import Conversation, VectorBounds, VectorReportSums, holm
from hybridp.public.questions import Regression
from hybridp.public.regression import ROUNDS, KindName, Line, NoisyRounds, OnLine, Trusted
from hybridp.public.rounds import Crowd, Later, Products, Scale
from hybridp.public.study import Declaration
from hybridp.release.release import GroupEstimate, Protection, Release, answer, gap_facts
from hybridp.tasks.task import BUILDERS, Draw, Task, declared, protected, task_receipt, undecided

__all__ = ["FormName", "RegressionTask", "regression_task"]

FormName = Literal["best", "steered", "plain", "tcm-only"]


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
        _ = self.whole  # a promise that no mechanism can keep is refused before a ledger is made for it

    @cached_property
    def whole(self) -> Trusted:
        """All of the trusted people's promise for their sums."""
        return Trusted(self._noise(self.trusted_whole))

    def split(self, share: float) -> Trusted:
        """A part of it for the scale of residuals."""
        rest, part = split_off(self.trusted_whole, share)
        return Trusted(self._noise(rest), rules.scale_noise(part))

    @property
    def _may_split(self) -> bool:
        return self.kind == "linear" and self.form in ("best", "steered") and self.clip is None

    def _noise(self, budget: Guarantee) -> AddedNoise:
        return rules.rounds_noise(budget, self.kind, self.bounds.dimensions - 1, self.noise)

    def trusted(self, trusted_people: int, local_people: int) -> Trusted:
        """How the trusted people are protected, from public numbers alone.

        Their residuals are looked at where a steered question then tells more than they do: where the variance of
        its mean score, for a clip of .75, is below that of their own score's noise.
        """
        share = rules.scale_share(trusted_people, self.trusted_whole.epsilon)
        if not (self._may_split and share and local_people):
            return self.whole
        own = 1.5 * self.whole.noise.variance / (rules.UNIT * trusted_people) ** 2
        return self.split(share) if 0.75**2 * self._told(local_people) < own else self.whole

    def _told(self, local_people: int) -> float:
        """The variance of local people's mean score, for a clip of 1 and scores that are small beside it."""
        line = Line(self.kind, "steered", self.bounds, (0.0,) * self.bounds.dimensions)
        return rules.line_invite(line, PureDP(self.guarantee.epsilon)).mechanism.cost(0.1) / max(local_people, 1)

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
        invite, expected = self.choose(said, local, crowd.names)
        got = None
        if invite is not None:
            about: dict[str, Any] = {name: getattr(invite.encoding, name) for name in ("form", "centre", "clip")}
            about |= {"trusted_people": people, "local_people": local}
            got = yield Later(invite, about={**about, "expected": expected})
        return self._publish(crowd, said, invite, None if got is None else got.local, expected)

    def question(
        self, score: Score | None, local_people: int, columns: tuple[str, ...] = (), place: int | None = None
    ) -> OnLine:
        """The question about the score at the trusted people's line; without one, about all products."""
        if score is None:
            line = Line(self.kind, "plain", self.bounds)
        else:
            clip = None if self.clip is None else self.clip / self.bounds.bounds[-1].half
            clip = clip or blending.clip_for(self.kind, score, place, self._told(local_people))
            line = Line(self.kind, "steered", self.bounds, tuple(score.fit().beta.tolist()), clip)
        return rules.line_invite(line, PureDP(self.guarantee.epsilon), columns)

    def choose(
        self, said: NoisyRounds | None, local_people: int, columns: tuple[str, ...] = ()
    ) -> tuple[OnLine | None, dict[str, float]]:
        """The question to ask, and the root mean squared error that each way promises, if any (unit coordinates)."""
        if self.form == "tcm-only" or not local_people:
            return None, {}
        forms = ["steered", "plain"] if self.kind == "linear" else ["steered"]
        if self.form in ("steered", "plain"):
            forms = [self.form]
        if said is None:
            if "plain" not in forms:
                raise UnusablePublicRows(
                    "`trust` must leave somebody trusted: only they can say where a line lies that local people are "
                    "asked about. Got nobody."
                )
            return self.question(None, local_people, columns), {}
        score = blending.trusted_score(said)
        invites = {
            form: self.question(score if form == "steered" else None, local_people, columns, said.place)
            for form in forms
        }
        expected = {name: fit.mse**0.5 for name, fit in blending.forecast(score, invites, local_people).items()}
        best = invites[min(forms, key=lambda form: (expected[form], form))]
        return best, {name: error for name, error in expected.items() if np.isfinite(error)}

    def _publish(
        self,
        crowd: Crowd,
        said: NoisyRounds | None,
        asked: OnLine | None,
        sums: VectorReportSums | None,
        expected: dict[str, float],
    ) -> Release:
        """Blend what the groups said and state what was promised. Post-processing: no rows, no noise."""
        from scipy.special import ndtr, ndtri

        assert self.people is not None
        if asked is None or sums is None or not sums.people:
            asked = sums = None
        line = None if asked is None else asked.encoding
        score = None if said is None else blending.trusted_score(said)
        if score is not None and line is not None and sums is not None:
            score = blending.spread_as_told(score, sums, line)
        own, linear = None if score is None else score.fit(), self.kind == "linear"
        lean = blending.LEAN if linear and self.clip is None else 0.0
        both, told, apart = blending.blend_groups(score, line, sums, lean)
        if both is None:
            raise InvalidInput("`people` must be enough for a regression: some statistic has fewer than two reports.")
        units, p_values, differences = Units.of(self.bounds, self.kind), None, None
        if own is not None and told is not None:
            differences = units.fit(own)[0] - units.fit(told)[0]
            if apart is not None and not (own.weak or told.weak):
                away = np.abs(told.beta - own.beta) / np.sqrt(np.maximum(np.diag(apart), 1e-300))
                p_values = holm(np.minimum(2 * ndtr(-away), 1.0).tolist())
        centre, errors = units.fit(both)
        missed = (1 - self.level) / (len(errors) if self.joint else 1)  # by each interval, at most
        wide = float(-ndtri(missed / 2)) * errors
        steered = line is not None and line.form == "steered"
        reach = line.clip * units.target if line is not None and steered else None
        columns = ["intercept", *crowd.names[:-1]]
        facts = answer(
            "regression",
            centre,
            (centre - wide, centre + wide),
            {
                "trusted": _group(units, 0 if said is None else said.people, own),
                "local": _group(units, self.people[1] if sums is None else sums.people, told),
            },
            gap_facts("columns", columns, self.level, differences, None, p_values),
            (
                "none" if said is None else self.protected.noise.name,
                "none" if asked is None else asked.mechanism.name,
            ),
            columns=columns,
            kind=self.kind,
            form="tcm-only" if line is None else line.form,
            joint=self.joint,
            standard_error=errors,
            expected=expected,
            clip=reach,
            noisy_totals=[] if said is None else [list(row) for row in said.totals],
            noisy_place=None if said is None else said.place,
        )
        rows = crowd.rows(self.bounds)
        if not linear:
            rows += "; a target above one half counts as 1, and any other as 0"
        clipped, local = "", None
        if steered and linear:
            beyond = f"a local target farther than {reach:.6g} from the trusted people's line"
            clipped = f"{beyond} counts as that far from it"
        if asked is not None:
            about = "the score at the trusted people's line" if steered else "all products"
            device = f"{asked.mechanism.name} report on {about}, on their own device"
            local = Protection(asked.promise, device, "no amplification is claimed")
        receipt = task_receipt(
            None if said is None else self._protection(),
            local,
            "everyone",
            clipped,
            "trusted people's sampling error takes residuals to vary alike everywhere, unless reports show more",
            moves="a local mean",
            rows=(rows,),
            unit="one person, one record, all of its columns",
            **crowd.made(),
        )
        return Release({crowd.names[-1]: {"regression": facts}}, self.level, receipt)

    def _protection(self) -> Protection:
        what = "each sum of products" if self.kind == "linear" else f"each sum of {ROUNDS[self.kind]} rounds"
        beside, scale = "", self.protected.scale
        if scale is not None:
            beside = f", and the scale of residuals by report noisy max (epsilon {scale.guarantee.epsilon:g})"
        return protected(self.trusted_whole, Draw(what, self.protected.noise, several=True), beside=beside)


def _group(units: Units, people: int, fit: Fit | None) -> GroupEstimate:
    return GroupEstimate(people) if fit is None else GroupEstimate(people, *units.fit(fit))


def regression_task(study: Declaration, place: int) -> RegressionTask:
    question = cast(Regression, study.questions[place])
    bounds = VectorBounds.of(question.lower, question.upper)
    return declared(RegressionTask, study, place, bounds=bounds, kind=question.model)


BUILDERS["regression"] = regression_task
