"""A published study: the answers to its questions under one receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.release import style
from hybridp.release.document import release_document
from hybridp.release.receipt import Promise, Receipt
from hybridp.release.result import Result, Words, promise_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["StudyRelease", "named_frame", "one_receipt"]


@dataclass(frozen=True)
class StudyRelease(Result):
    """The answers of a study by the names of its questions, and the one receipt of all.

    ``release["salary"]`` is the answer to that question, as the question's own kind of release.
    """

    title: str
    answers: Mapping[str, Any]
    level: float
    receipt: Receipt

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def sealed(self) -> bool:
        """Each answer has reports of its own, and was held to its own receipt when it was made."""
        return True

    def __getitem__(self, name: str) -> Any:
        return self.answers[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        told = {name: _facts(answer) for name, answer in self.answers.items()}
        return release_document(told, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """The answers' tables below each other, with the question's name; needs pandas, the extra "frames"."""
        import pandas as pd

        parts = [named_frame(answer.to_frame()).assign(question=name) for name, answer in self.answers.items()]
        found: DataFrame = pd.concat(parts, ignore_index=True)
        return found[["question", *(name for name in found.columns if name != "question")]]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Every answer's picture, one below the other; needs matplotlib, the extra "plot"."""
        if len(self.answers) == 1:
            alone: Axes = next(iter(self.answers.values())).plot(ax)
            return alone
        if ax is None:
            import matplotlib.pyplot as plt

            whole = plt.figure(figsize=(7.2, 3.2 * len(self.answers)), layout="constrained")
            parts: Any = whole.subfigures(len(self.answers), 1)
            drawn = [a.plot(part.subplots()) for part, a in zip(parts, self.answers.values(), strict=True)]
            first: Axes = drawn[0]
            return first
        place, figure = ax.get_subplotspec(), ax.figure
        must(place is not None, "ax", "must be axes of a grid, which a study of several questions divides", "others")
        assert place is not None
        ax.set_axis_off()
        grid = place.subgridspec(len(self.answers), 1)
        for row, answer in enumerate(self.answers.values()):
            answer.plot(figure.add_subplot(grid[row]))
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        title = f"{self.title or 'Answers'}; promised in all: {promise_words(self.receipt)}"
        return Words(title, ("question", "answer"), [(name, str(answer)) for name, answer in self.answers.items()])

    def all_words(self) -> list[Words]:
        """Every answer's own table, under the study's title."""
        first, *more = (answer.in_words() for answer in self.answers.values())
        return [replace(first, title=f"{self.in_words().title}. {first.title}"), *more]

    def __str__(self) -> str:
        mark = f"  [{style.SIMULATED}]" if self.simulated else ""
        return "\n".join(f"{name}: {answer}" for name, answer in self.answers.items()) + mark


def named_frame(frame: DataFrame) -> DataFrame:
    """A frame whose rows are named by a column of it, so that they still are below other frames."""
    return frame if frame.index.name is None else frame.reset_index()


def _facts(answer: Any) -> dict[str, Any]:
    """What the answer's own document says of its statistics."""
    (facts,) = answer.to_dict()["questions"].values()
    found: dict[str, Any] = facts
    return found


def one_receipt(receipts: Mapping[str, Receipt], split: str = "", *, once: tuple[str, ...] = ()) -> Receipt:
    """The receipt of all questions: each group's promises added up, and every assumption once.

    `split` says how the promise was divided; the sums are by basic composition, as the same people answer everything.
    People of the groups in `once` sent one report each, whichever of the receipts it is told in: theirs are not added.
    """
    if len(receipts) == 1:
        return next(iter(receipts.values()))
    promises: dict[tuple[str, str], list[tuple[str, Promise]]] = {}
    for name, receipt in receipts.items():
        for promise in receipt.promises:
            promises.setdefault((promise.people, promise.against), []).append((name, promise))
    every = list(receipts.values())
    assumes = [*([split] if split else []), *(line for receipt in every for line in receipt.assumes)]
    made = [receipt.assumed_mechanism for receipt in every if receipt.assumed_mechanism is not None]
    return replace(
        every[0],
        promises=tuple(_added(who, against, said, who in once) for (who, against), said in promises.items()),
        randomness=max((receipt.randomness for receipt in every), key=len),
        simulated=any(receipt.simulated for receipt in every),
        unit=" / ".join(dict.fromkeys(receipt.unit for receipt in every)),
        assumes=tuple(dict.fromkeys(assumes)),
        ledger_entries=(),
        assumed_mechanism="; ".join(dict.fromkeys(made)) or None,
    )


def _added(people: str, against: str, said: Sequence[tuple[str, Promise]], once: bool) -> Promise:
    budgets = [promise.budget for _, promise in said]
    known = [budget for budget in budgets if isinstance(budget, (PureDP, ApproxDP))]
    mechanism = "; ".join(f"{name}: {promise.mechanism}{_level(promise)}" for name, promise in said)
    notes = "; ".join(dict.fromkeys(promise.note for _, promise in said if promise.note))
    if len(known) < len(budgets):  # trust in place of a guarantee
        return Promise(people, against, None, "; ".join(dict.fromkeys(p.mechanism for _, p in said)), notes)
    if once:
        most = max(known, key=lambda budget: (budget.epsilon, budget.delta))
        made = "; ".join(dict.fromkeys(promise.mechanism for _, promise in said))
        return Promise(people, against, most, made, notes)
    epsilon = float(sum(Fraction(repr(float(budget.epsilon))) for budget in known))
    delta = float(sum(Fraction(repr(float(budget.delta))) for budget in known))
    relation = known[0].neighbours
    whole = promised(epsilon, delta, relation)
    return Promise(people, against, whole, mechanism, notes)


def _level(promise: Promise) -> str:
    budget = promise.budget
    if not isinstance(budget, (PureDP, ApproxDP)):
        return ""
    delta = f", delta {budget.delta:g}" if budget.delta else ""
    level = f"epsilon {budget.epsilon:.12g}{delta}"
    if promise.mechanism.endswith(f"({level})"):
        return ""
    return f", in all {level}" if "(epsilon " in promise.mechanism else f" ({level})"
