"""Questions of every kind, as they are declared, and a made-up crowd that can be asked all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from hybridp import Study

__all__ = ["INVITED", "LOCAL", "OWN", "PROMISE", "TASKS", "TRUSTED", "Sent", "crowd", "declare", "question"]

TRUSTED, LOCAL = 400, 1_600
PROMISE = {"epsilon": 4.0, "delta": 1e-6}
WAYS = ["bus", "car", "foot"]


def question(name: str, kind: str, *columns: str, **more: Any) -> dict[str, Any]:
    """What has an upper bound starts at 0, and a value of it that is missing counts as the middle."""
    bounded = {"missing": "middle", "lower": 0} if "upper" in more else {}
    return {"name": name, "kind": kind, **({"columns": [*columns]} if columns else {}), **bounded, **more}


_PAY = question("pay", "number", upper=100)
_WAY = question("way", "choice", options=WAYS, missing="foot")
_FEATURES = [{"name": "way", "values": WAYS}, {"name": "town", "values": ["u", "v"]}]
TASKS: dict[str, dict[str, Any]] = {
    "mean": _PAY,
    "statistics": {**_PAY, "statistics": ["mean", "sd", "quantiles"], "at": [0.5]},
    "steered": {**_PAY, "form": "steered"},
    "own epsilons": _PAY,
    "own choice": _WAY,
    "own shares": {**_PAY, "statistics": ["shares-below", "histogram"], "below": [30], "edges": [0, 20, 50, 100]},
    "public groups": {**_PAY, "by": "town"},
    "statistics by group": {**_PAY, "statistics": ["mean", "quantiles"], "at": [0.5], "by": "town"},
    "private groups": {**_WAY, "by": "ill", "by_private": True, "categories": ["yes", "no"]},
    "choice": _WAY,
    "ticks": question("liked", "choice", options=["a", "b", "c"], several=2, missing="none"),
    "count": question("way", "count", value="bus"),
    "vector": question("body", "vector", "a", "b", upper=100),
    "vector by group": question("body", "vector", "a", "b", upper=100, by="town"),
    "records": question("search", "records", "query", head=5),
    "points": question("place", "points", "x", "y", upper=1, clusters=2),
    "regression": question("line", "regression", target="b", on=["a"], upper=100),
    "table": question("home", "table", other="last", features=_FEATURES, marginals=["way,town"], rows=60),
}


OWN = ("own epsilons", "own choice", "own shares")  # whose people each have an epsilon; of some, in levels


@cache
def crowd() -> pd.DataFrame:
    """Numbers, points around two centres, options, searches of which three are frequent; one in five trusts."""
    import numpy as np

    draw, people = np.random.default_rng(3), np.arange(TRUSTED + LOCAL)
    centre = np.where(people % 2, 0.25, 0.75)
    a = draw.normal(50, 10, len(people))
    searched = ["weather", "news", "maps"]
    numbers = {"pay": draw.normal(40, 10, len(people)), "a": a, "b": a / 2 + draw.normal(10, 5, len(people))}
    numbers |= {"x": draw.normal(centre, 0.05), "y": draw.normal(centre, 0.05)}
    words = {
        "query": [searched[i % 7] if i % 7 < 3 else f"rare{i % 50}" for i in people],
        "way": [(*WAYS, "bus")[i % 4] for i in people],
        "liked": ["a;b" if i % 3 else "c" for i in people],
        "town": ["uv"[i % 2] for i in people],
        "ill": ["no" if i % 3 else "yes" for i in people],
        "trust": ["local" if i % 5 else "trusted" for i in people],
    }
    rounded = {name: values.round(3) for name, values in numbers.items()}
    return pd.DataFrame({"id": people, **rounded, **words, "own": np.array([0.5, 1.0, 2.0])[people % 3]})


def declare(task: str, **changes: Any) -> Study:
    """A study of that question alone, whose intervals miss once in a million."""
    people: dict[str, Any] = {"public": ["trust", "own", "town"], "trusted": TRUSTED, "local": LOCAL}
    if task == "records":
        people["column"] = "id"
    promise: dict[str, Any] = {"epsilon_column": "own"} if task in OWN else PROMISE
    promise = {**promise, "allowed_epsilons": [0.5, 1, 2]} if task in OWN[1:] else promise
    stated = {"title": task, "promise": promise, "trust": "trust", "people": people, "level": 1 - 1e-6}
    return Study(**{**stated, "questions": [TASKS[task]], **changes})


INVITED = ("steered", "records", "regression", "points")  # whose local people answer an invitation


@dataclass(frozen=True)
class Sent:
    """A folder with what devices sent to a study, and the invitation where there is one."""

    task: str
    study: Study
    folder: Path

    @property
    def invited(self) -> dict[str, Path]:
        return {"invite": self.folder / "invite.json"} if self.task in INVITED else {}
