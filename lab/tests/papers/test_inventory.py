"""The inventory page: nothing of the four documents is missing, and every pointer leads to something that is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from hybridp_lab.figure.catalogue import catalogue

pytest.importorskip("botorch")
ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "inventory.md"


def numbers(chapter: str, first: int, last: int, without: tuple[int, ...] = ()) -> list[str]:
    return [f"{chapter}.{i}" for i in range(first, last + 1) if i not in without]


def several(text: str) -> list[str]:
    return text.split()


# What the documents number, by kind. Lemmas, theorems, corollaries and definitions share one count in each section.
SHARED_P = [*numbers("2", 1, 2), *numbers("3", 1, 13), *numbers("4", 1, 4), *numbers("5", 1, 5), "6.1", "8.1"]
SHARED_D = [*numbers("1.1", 1, 8), *numbers("2.2", 1, 8), *numbers("2.3", 1, 25), *numbers("2.4", 1, 2), "3.2.1"]
SHARED_D += [*numbers("4.2", 1, 14), "4.3.1", *numbers("4.4", 1, 4), *numbers("4.5", 1, 3)]
WANTED = {
    "W": {"shared": numbers("3", 1, 4), "Figure": ["1", "2"], "Table": [], "Algorithm": []},
    "P": {"shared": SHARED_P, "Figure": [str(i) for i in range(1, 9)], "Table": ["1"], "Algorithm": ["1"]},
    "H": {"shared": several("Definition-1 Theorem-1 Theorem-2 Remark-1"), "Figure": ["1"], "Table": ["I", "II"],
          "Algorithm": ["1"]},
    "D": {
        "shared": SHARED_D,
        "Figure": [*numbers("2", 1, 20), *numbers("3", 1, 10), *numbers("4", 1, 16)],
        "Table": [*numbers("2", 1, 4), *numbers("3", 1, 4), *numbers("4", 1, 5)],
        "Algorithm": [*numbers("2", 1, 7), *numbers("3", 1, 5), *numbers("4", 1, 4)],
    },
}  # fmt: skip


def listed(text: str) -> dict[str, list[tuple[str, str, str]]]:
    """By document: kind, number and pointer of every line."""
    result: dict[str, list[tuple[str, str, str]]] = {}
    document = ""
    for line in text.splitlines():
        if line.startswith("## "):
            document = line[3]
        elif match := re.fullmatch(r"\| (\w+) (\S+) \| [^|]+ \| `([^`]+)` \|", line):
            result.setdefault(document, []).append((match[1], match[2], match[3]))
    return result


def missing(text: str) -> list[str]:
    """What the documents number and the page does not have, and what it has twice or that they do not number."""
    out = []
    page = listed(text)
    for document, kinds in WANTED.items():
        lines = page.get(document, [])
        for kind, wanted in kinds.items():
            plain = ("Figure", "Table", "Algorithm")
            own = [
                (f"{k}-{n}" if document == "H" else n) if kind == "shared" else n
                for k, n, _ in lines
                if (k == kind if kind in plain else k not in plain)
            ]
            out += [f"{document} {kind} {n}" for n in sorted(set(wanted) ^ set(own))]
            out += [f"{document} {kind} {n} twice" for n in own if own.count(n) > 1]
    return out


def dangling(pointer: str) -> bool:
    if ":" in pointer:
        module, name = pointer.split(":")
        return not hasattr(importlib.import_module(module), name)
    return pointer not in catalogue() and not (ROOT / pointer).is_file()


def test_nothing_is_missing() -> None:
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_every_pointer_leads_somewhere() -> None:
    wrong = [line for lines in listed(PAGE.read_text(encoding="utf-8")).values() for line in lines if dangling(line[2])]
    assert wrong == []


def test_every_entry_is_in_the_page() -> None:
    """A figure's entry stands in its line, and entries about the text are named above."""
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in catalogue() if f"`{name}`" not in text] == []


def test_a_line_that_is_gone_or_wrong_is_noticed() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for line in ("| Lemma 5.4 |", "| Figure 4.10 |", "| Algorithm 3.5 |", "| Theorem 2 |", "| Definition 4.5.3 |"):
        gone = "\n".join(row for row in text.splitlines() if not row.startswith(line))
        assert len(missing(gone)) == 1, line
    assert len(missing(text.replace("| Figure 4.10 |", "| Figure 4.17 |"))) == 2
    assert dangling("hybridp.public.messages:no_such_weight")
    assert dangling("mean-99")
