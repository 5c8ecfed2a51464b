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
    found = [run(f"{line} {how} --json").document for how in ("--level .9 --joint", "--level .98", "--level .9")]
    joint, each, plain = (one["questions"]["pay"] for one in found)
    assert [one["level"] for one in found] == [0.9, 0.98, 0.9]
    for name in ("quantiles", "shares-below", "variance", "sd", "gini"):
        assert np.allclose(joint[name]["interval"], each[name]["interval"], rtol=1e-9)
        assert joint[name]["joint"]
        assert not plain[name]["joint"]
    assert not joint["distribution"]["joint"]
    assert np.ptp(joint["variance"]["interval"]) > np.ptp(plain["variance"]["interval"])
    assert "joint 90% intervals" in " ".join(run(f"{line} --level .9 --joint").out.split())

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


def test_an_invitation_that_is_none_or_stands_beside_other_words_is_refused(run: Runner, people: Path) -> None:
    assert run(f"release quantiles people.csv {PAY} --invite-out i.json").code == 0
    assert (
        run(
            "randomise quantiles people.csv --trust trust --missing middle --invite i.json --epsilon 9 --out sent.csv"
        ).code
        == 0
    )
    Path("edited.json").write_text(Path("i.json").read_text().replace('"people": ', '"people": 1'))
    for line, word in (
        ("sent.csv --trust trust --invite edited.json", "--invite-out wrote"),
        ("sent.csv --trust trust --invite people.csv", "--invite-out wrote"),
        ("sent.csv --trust trust --invite i.json --epsilon 2", "`epsilon`"),
        ("sent.csv --trust trust --invite i.json --invite-out i.json", "new file"),
        ("people.csv --trust trust --invite i.json", "randomise"),
        (f"people.csv {PAY} --invite-out i.json", "new file"),
        (f"people.csv {PAY} --form steered", "`form`"),
        (f"people.csv {PAY} --below 30 --invite-out new.json", "`at`"),
        ("people.csv --column pay --trust trust --missing middle --lower 0 --upper 9", "'--epsilon'"),
    ):
        left = run(f"release quantiles {line} --ledger l")
        assert (left.code, left.err.count("\n"), Path("l").exists()) == (2, 1, False), line
        assert word in left.err, line
        assert SECRET not in left.err
    assert (
        run(
            "randomise quantiles people.csv --trust trust --missing middle --invite i.json --epsilon 9 "
            "--missing middle --lower 0 --out s.csv"
        ).code
        == 2
    )
    assert run("randomise quantiles people.csv --trust trust --out s.csv").code == 2
    # Answers to one invitation are not taken for those to another, nor for reports of a mean.
    assert run(f"release quantiles people.csv {PAY} --invite-out j.json").code == 0
    assert run("release quantiles sent.csv --trust trust --invite j.json").code == 2
    assert run(f"release mean sent.csv {PAY}").code == 2
    # A ledger that begins with phase two holds no new promise to the trusted people, who have spent theirs.
    assert run("release quantiles sent.csv --trust trust --invite i.json --ledger two").code == 0
    assert [one.people for one in Ledger.open("two").accounts()] == ["local"]
