"""Published shares: one estimate an option, their intervals, whether the groups agree, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["ShareGroup", "SharesRelease"]

Numbers = tuple[float, ...]
_DRAWN = 60  # options whose names a picture can hold


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """One group's own noisy shares; already private."""

    people: int
    shares: Numbers | None = None
    standard_errors: Numbers | None = None


@dataclass(frozen=True, slots=True)
class SharesRelease:
    """The shares of the population that the people were drawn from; every tuple has one entry an option.

    `estimate` is unbiased (given fixed weights) and may lie below 0; `projected` is the nearest that is not negative
    and adds up to 1. Each interval covers its own option at the stated level or, when `joint`, all of them cover
    together. `p_values` tell where the two groups disagree, adjusted for the number of options (Holm).
    """

    question: str
    options: tuple[str, ...]
    edges: Numbers
    estimator: str
    estimate: Numbers
    projected: Numbers
    low: Numbers
    high: Numbers
    level: float
    joint: bool
    weights: Numbers
    trusted: ShareGroup
    local: ShareGroup
    p_values: Numbers | None
    noise: str
    reports: str
    receipt: Receipt

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def statistic(self) -> str:
        return "histogram" if self.edges else "shares"

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The options in which the groups disagree, for all of them together: at 5 % beside 95 % intervals."""
        found = zip(self.options, self.p_values or (1.0,) * len(self.options), strict=True)
        return tuple(name for name, p in found if p < self.test_level)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        gaps = None
        if self.trusted.shares is not None and self.local.shares is not None:
            gaps = [own - told for own, told in zip(self.trusted.shares, self.local.shares, strict=True)]
        told = statistic(
            self.statistic,
            list(self.estimate),
            (list(self.low), list(self.high)),
            _listed(self.trusted.shares),
            _listed(self.local.shares),
            options=list(self.options),
            **({"edges": list(self.edges)} if self.edges else {}),
            projected=list(self.projected),
            joint=self.joint,
            estimator=self.estimator,
            weight=list(self.weights),
            groups={
                name: {"people": group.people, "standard_error": _listed(group.standard_errors)}
                for name, group in (("trusted", self.trusted), ("local", self.local))
            },
            disagreement={
                "difference": gaps,
                "p_value": _listed(self.p_values),
                "options": list(self.disagreeing),
                "test_level": self.test_level,
            },
            mechanisms={"trusted": self.noise, "local": self.reports},
        )
        return release_document({self.question: {self.statistic: told}}, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row an option; needs pandas, the extra "frames"."""
        import pandas as pd

        nothing = (None,) * len(self.options)
        return pd.DataFrame(
            {
                "share": self.projected,
                "low": self.low,
                "high": self.high,
                "weight": self.weights,
                "trusted_share": self.trusted.shares or nothing,
                "local_share": self.local.shares or nothing,
                "p_value": self.p_values or nothing,
            },
            index=pd.Index(self.options, name="option"),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """A bar and an interval for each option; needs matplotlib, the extra "plot"."""
        many = len(self.options) > _DRAWN
        if ax is None:
            import matplotlib.pyplot as plt

            height = 4.8 if many else 1.2 + 0.28 * len(self.options)
            _, ax = plt.subplots(figsize=(6.4, height), layout="constrained")
        rows = range(len(self.options))
        below = [max(0.0, x - end) for x, end in zip(self.projected, self.low, strict=True)]
        above = [max(0.0, end - x) for x, end in zip(self.projected, self.high, strict=True)]
        ax.barh(rows, self.projected, color="C0", alpha=0.35)
        ax.errorbar(self.projected, rows, xerr=[below, above], fmt="o", ms=2 if many else 5, capsize=3, lw=1.5)
        if many:
            ax.set_ylabel("option")
        else:
            ax.set_yticks(rows, self.options)
        ax.set_ylim(len(self.options) - 0.4, -0.6)
        kind = "joint " if self.joint else ""
        mark = " (simulated)" if self.simulated else ""
        ax.set_xlabel(f"share of people by {self.question}, with {kind}{100 * self.level:.6g}% interval{mark}")
        ax.grid(axis="x", alpha=0.3)
        return ax

    def __str__(self) -> str:
        mark = "\n[SIMULATED: not a private release]" if self.simulated else ""
        shown = zip(self.options, self.projected, self.low, self.high, strict=True)
        return "\n".join(f"{n}: {x:.2%}  ({low:.2%} to {high:.2%})" for n, x, low, high in shown) + mark


def _listed(values: Numbers | None) -> list[float] | None:
    return None if values is None else list(values)
