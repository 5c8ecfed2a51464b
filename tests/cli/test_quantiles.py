"""`release quantiles`: what is refused, in one sentence, and what is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hybridp.ledger import Ledger

from .conftest import SECRET, Runner

PAY = "--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    rows = [f"{(37 * i) % 100},{'trusted' if i % 5 else 'local'}" for i in range(2000)]
    rows[1] = f"{SECRET},trusted"
    file = tmp_path / "people.csv"
    file.write_text("pay,trust\n" + "\n".join(rows) + "\n")
    return file


def test_joint_intervals_share_what_may_miss_and_an_invitation_passes_it_on(run: Runner, people: Path) -> None:
    """Two quantiles, a share, the variance (an sd's interval is the variance's) and Gini: five. Bonferroni: each misses
    a fifth as often. The curve, of which nobody asked, is not among those that hold together."""
    line = f"release quantiles people.csv {PAY} --at .25,.5 --below 30 --spread --simulate-local --seed 5"
    found = [run(f"{line} {how} --json").document for how in ("--level .9 --joint", "--level .98")]
    joint, each = (one["questions"]["pay"] for one in found)
    assert [one["level"] for one in found] == [0.9, 0.98]
    for name in ("quantiles", "shares-below", "variance", "sd", "gini"):
        assert np.allclose(joint[name]["interval"], each[name]["interval"], rtol=1e-9)
        assert joint[name]["joint"]
        assert not each[name]["joint"]
    assert not joint["distribution"]["joint"]

    first = f"release quantiles people.csv {PAY} --at .5 --below 30 --seed 6"
    assert run(f"{first} --level .9 --joint --invite-out joint.json").code == 0
    assert run(f"{first} --level .95 --invite-out each.json").code == 0
    later = []
    for name in ("joint", "each"):
        send = (
            "randomise quantiles people.csv --trust trust "
            f"--missing middle --invite {name}.json --epsilon 9 --out {name}.csv --seed 7"
        )
        assert run(send).code == 0
        later.append(run(f"release quantiles {name}.csv --trust trust --invite {name}.json --json").document)
    assert [one["level"] for one in later] == [0.9, 0.95]
    told = [one["questions"]["pay"] for one in later]
    assert [one["quantiles"]["joint"] for one in told] == [True, False]
    assert np.allclose(told[0]["quantiles"]["interval"], told[1]["quantiles"]["interval"])
    assert "`joint`" in run("release quantiles joint.csv --trust trust --invite joint.json --joint").err


def test_answers_to_an_invitation_belong_to_it_alone(run: Runner, people: Path) -> None:
    assert run(f"release quantiles people.csv {PAY} --invite-out i.json").code == 0
    line = "randomise quantiles people.csv --trust trust --missing middle --invite i.json --epsilon 9 --out sent.csv"
    assert run(line).code == 0
    # Answers to one invitation are not taken for those to another, nor for reports of a mean.
    assert run(f"release quantiles people.csv {PAY} --invite-out j.json").code == 0
    assert run("release quantiles sent.csv --trust trust --invite j.json").code == 2
    assert run(f"release mean sent.csv {PAY}").code == 2
    # A ledger that begins with phase two holds no new promise to the trusted people, who have spent theirs.
    assert run("release quantiles sent.csv --trust trust --invite i.json --ledger two").code == 0
    assert [one.people for one in Ledger.open("two").accounts()] == ["local"]
