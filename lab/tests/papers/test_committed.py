"""The committed results: every claim is whole, and points computed again are the ones that are kept."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botorch")

from hybridp_lab.figure.catalogue import RESULTS, catalogue, read_figures
from hybridp_lab.figure.declared import ORDER

ERRATA = Path(__file__).resolve().parents[3] / "docs" / "errata.md"
KEYS = ("claim", "place", "status", "printed", "value", "interval", "trials")


@pytest.fixture(scope="module")
def outcomes() -> list[Any]:
    return read_figures(list(catalogue().values()))


def test_every_claim_is_whole(outcomes: list[Any]) -> None:
    known = set(re.findall(r"^### (\d+)\. ", ERRATA.read_text(encoding="utf-8"), flags=re.MULTILINE))
    seen = set()
    for o in outcomes:
        assert not o.error, (o.figure.name, o.error)
        for check in o.verdict.claims:
            told = (o.figure.name, check.claim)
            assert told not in seen
            seen.add(told)
            line = check.to_dict()
            assert all(key in line for key in KEYS)
            assert check.place, told
            assert check.printed, told
            assert check.claim.endswith("."), told
            assert check.status in ORDER
            assert check.status != "refuted" or check.erratum or check.reason, told
            assert check.status != "not judgeable" or check.reason, told
            assert check.status != "undecided" or check.cost, told
            assert set(re.findall(r"\d+", check.erratum)) <= known | {"21"}, told
        assert not [c.claim for c in o.verdict.unconfirmed], o.figure.name


def test_a_measured_status_is_what_its_interval_says(outcomes: list[Any]) -> None:
    """By the rule in words that stands beside it, read again: above, below, or between two numbers."""
    judged = 0
    for o in outcomes:
        for check in o.verdict.checks:
            limit = re.fullmatch(r"(above|below) (\S+)|between (\S+) and (\S+)", check.rule)
            if limit is None or check.low is None or not check.trials:
                continue
            side, one, first, last = limit.groups()
            if side == "above":
                inside, outside = check.low > float(one), check.high < float(one)
            elif side == "below":
                inside, outside = check.high < float(one), check.low > float(one)
            else:
                inside = float(first) <= check.low and check.high <= float(last)
                outside = check.high < float(first) or check.low > float(last)
            status = check.stand_in or check.status
            smaller = status == "undecided" and o.figure.smaller and outside
            wanted = "reproduced" if inside else "refuted" if outside else "undecided"
            assert smaller or status.startswith(wanted), (o.figure.name, check)
            judged += 1
    assert judged > 50


def _cheapest(file: Path) -> dict[str, Any]:
    lines = gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()
    return min((json.loads(line) for line in lines), key=lambda known: float(known["seconds"]))


def _plain(rows: Any) -> Any:
    """Rows without what a clock or a memory says."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "bytes")} for row in json.loads(json.dumps(rows))]


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.jsonl.gz")), ids=lambda file: file.name.partition(".")[0])
def test_a_point_computed_again_is_the_committed_one(file: Path) -> None:
    """Up to what fits in single precision owe to the processor: another seed or setting is further off by far.

    Of rounds that choose by what was fitted before, the first four: such differences grow with every choice.
    """
    known = _cheapest(file)
    key = json.loads(known["key"])
    name = file.name.partition(".")[0]
    runs = [(f, run) for f in catalogue().values() for run in (f.run, f.nearer.run if f.nearer else None) if run]
    figure, run = next(pair for pair in runs if pair[1].__name__ == name)
    if figure.inputs(key["point"]) != key["inputs"] or known["seconds"] > 5:
        pytest.skip("its data are not here, or it takes long")
    again = _plain(run(key["point"]))
    assert known["version"]
    assert len(again) == len(known["rows"])
    first = 4 if file.name.startswith("progress") else len(again)
    for ours, theirs in zip(again[:first], _plain(known["rows"])[:first], strict=True):
        for name, value in theirs.items():
            if isinstance(value, float) or (isinstance(value, list) and value and isinstance(value[0], float)):
                assert ours[name] == pytest.approx(value, rel=1e-3, abs=1e-9), name
            else:
                assert ours[name] == value, name
