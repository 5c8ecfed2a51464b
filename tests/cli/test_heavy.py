"""Heavy hitters on the command line: plans, one go, two phases, ledgers, pictures, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridp.release.result import sole

Runner = Callable[..., Any]
PRIVACY = "--epsilon 4 --delta 1e-5"
PLAN = f"plan heavy-hitters --n 519371 --opt-in 0.05 {PRIVACY}"


# --- plan ---


def test_a_file_of_counts_is_a_plan_too(run: Runner, tmp_path: Path) -> None:
    counts = [1000, 500, 250, 125]
    (tmp_path / "counts.csv").write_text("times\n" + "\n".join(map(str, counts)) + "\n")
    (tmp_path / "shares.csv").write_text("times\n" + "\n".join(str(c / 1875) for c in counts) + "\n")
    one, two = (
        sole(run(f"{PLAN} --popularity {f}.csv --column times --json").document)["predicted"]
        for f in ("counts", "shares")
    )
    for key in ("share", "standard_error"):
        assert one["top"][key] == pytest.approx(two["top"][key])
    assert one["discovered"] == pytest.approx(4)
    assert one["top"]["share"][0] == pytest.approx(1000 / 1875)
