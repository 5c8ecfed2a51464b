"""What every release and every plan can do: plain data, a frame, a picture, a page of a notebook, a line of text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hybridp.release.facts import SIMULATED, Facts
from hybridp.release.receipt import Receipt
from hybridp.release.style import WARNING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Result", "Words", "result_schema", "sole"]

Questions = Mapping[str, Mapping[str, Facts]]


@dataclass(frozen=True, slots=True)
class Words:
    """A result for people: a title, a table and remarks, all of it plain text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    remarks: tuple[str, ...] = ()


class Result(ABC):
    """A release or a plan. What it says is in `to_dict`; the other methods say the same to people."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""

    @abstractmethod
    def to_frame(self) -> DataFrame:
        """A table for further work; needs pandas, the extra "frames"."""

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Axes:
        """A picture, on these axes or on new ones; needs matplotlib, the extra "plot"."""

    @abstractmethod
    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""

    def all_words(self) -> list[Words]:
        """What a notebook shows, one below the other."""
        return [self.in_words()]

    def __str__(self) -> str:
        words, receipt = self.in_words(), getattr(self, "receipt", None)
        wide = [max(map(len, column)) for column in zip(words.columns, *words.rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip()
                 for row in (words.columns, *words.rows)]  # fmt: skip
        mark = [f"[{SIMULATED}]"] if receipt is not None and receipt.simulated else []
        return "\n".join([words.title, *lines, *words.remarks, *mark])

    def _repr_html_(self) -> str:
        receipt = getattr(self, "receipt", None)
        parts = [] if receipt is None or not receipt.simulated else [_mark()]
        for words in self.all_words():
            parts += [f'<p style="font-weight:600;margin:.4em 0">{escape(words.title)}</p>', _table(words)]
            parts += [f'<p style="margin:.4em 0">{escape(remark)}</p>' for remark in words.remarks]
        if receipt is not None:
            parts.append(_receipt(receipt))
        return f'<div class="hybridp-result" style="max-width:60em">{"".join(parts)}</div>'


def _mark() -> str:
    return f'<p style="font-weight:700;color:#fff;background:{WARNING};padding:.2em .6em">{escape(SIMULATED)}</p>'


def _table(words: Words) -> str:
    def cells(row: Iterable[str], tag: str) -> str:
        sides = ("left" if i == 0 else "right" for i in range(len(words.columns)))
        return "".join(
            f'<{tag} style="text-align:{side};padding:.2em .8em .2em 0">{escape(cell)}</{tag}>'
            for cell, side in zip(row, sides, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in words.rows)
    return f"<table><thead><tr>{cells(words.columns, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _receipt(receipt: Receipt) -> str:
    """What each group was promised, in the open; what that assumes, on demand."""
    promised, rest = (
        "".join(f"<li>{escape(str(line))}</li>" for line in lines) for lines in (receipt.promises, receipt.conditions)
    )
    return (
        f'<p style="font-weight:600;margin:.6em 0 0">Receipt</p><ul style="margin:.2em 0">{promised}</ul>'
        f"<details><summary>What this assumes</summary><ul>{rest}</ul></details>"
    )


def sole(document: Mapping[str, Any]) -> dict[str, Any]:
    """The only statistic of a document about one question; what more of them say is under their own names."""
    ((facts,),) = (found.values() for found in document["questions"].values())
    told: dict[str, Any] = facts
    return told


def result_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that every release and plan keeps to.

    >>> result_schema()["$defs"]["release"]["properties"]["schema"]
    {'const': 1}
    """
    found: dict[str, Any] = json.loads(files("hybridp.release").joinpath("result.schema.json").read_text("utf-8"))
    return found
