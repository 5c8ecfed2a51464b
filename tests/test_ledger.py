"""The ledger's laws: nothing is spent twice, nothing is lost, and nobody gets more than was promised."""

from __future__ import annotations

import math
import random
import signal
import sqlite3
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from hybridp.errors import BudgetExceeded, InvalidInput, LedgerProblem, UnusablePublicRows, UnusableRows
from hybridp.ledger import Charge, Ledger
from hybridp.public.mechanisms import ApproxDP, Neighbours, PureDP
from tests import warm


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "study.ledger", {"trusted": ApproxDP(1.0, 1e-6), "local": PureDP(2.0)})


def of(epsilon: float, delta: float = 0.0, *, people: str = "trusted", collection: str | None = None) -> Charge:
    return Charge(people, ApproxDP(epsilon, delta), "a mechanism", "a purpose", collection=collection)


def spend(ledger: Ledger, *charges: Charge) -> list[int]:
    with ledger.spending(charges) as ids:
        return ids


def audit(path: Path) -> dict[str, tuple[int, int]]:
    """Straight from the file: it is sound, and each account's spending is the sum of its standing charges."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        books = {}
        for people, total, spent in db.execute("SELECT people, epsilon_total, epsilon_spent FROM accounts").fetchall():
            row = db.execute("SELECT SUM(epsilon) FROM charges WHERE people = ? AND state <> 'void'", (people,))
            assert (row.fetchone()[0] or 0) == spent <= total
            books[people] = (spent, total)
        return books
    finally:
        db.close()


# --- spending ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.0), (0.5, 0.0), (1.0, 1e-9)])
def test_a_later_phase_is_free_at_the_price_of_the_first_alone(tmp_path: Path, epsilon: float, delta: float) -> None:
    """Who answers at another price was not promised what the first phase paid for: all of it is charged."""
    book = Ledger.create(tmp_path / "l", {"local": ApproxDP(4.0, 1e-6)})

    def phase(price: ApproxDP | PureDP, digest: str, beside: str | None) -> float:
        before = book.remaining("local").epsilon
        name = None if beside is None else "phase 2"
        spend(book, Charge("local", price, "an answer", "p", collection=name, digest=digest, beside=beside))
        return before - book.remaining("local").epsilon

    assert phase(PureDP(1.0), "first", None) == 1.0
    assert phase(ApproxDP(epsilon, delta), "second", "first") == epsilon
    assert phase(PureDP(1.0), "third", "first") == 0.0  # a control


def test_an_overdraft_is_refused_before_the_body_runs(ledger: Ledger) -> None:
    spend(ledger, of(0.75))
    ran = []
    sentence = r"asked for epsilon 0\.5, delta 0, but has epsilon 0\.25"
    with pytest.raises(BudgetExceeded, match=sentence) as refusal, ledger.spending([of(0.5)]):
        ran.append(1)
    assert not ran
    assert refusal.value.exit_code == 3
    with pytest.raises(BudgetExceeded):
        spend(ledger, of(0.1, 2e-6))
    assert ledger.remaining("trusted") == ApproxDP(0.25, 1e-6)
    assert [entry.state for entry in ledger.history()] == ["spent"]


def test_several_charges_stand_or_fall_together(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded):
        spend(ledger, of(0.5, people="local"), of(0.6), of(0.6))
    assert ledger.history() == []
    assert ledger.remaining("local").epsilon == 2
    assert len(spend(ledger, of(0.5, people="local"), of(0.6))) == 2


def test_a_charge_is_void_when_the_failure_tells_nothing_of_the_rows(ledger: Ledger) -> None:
    for failure in (InvalidInput, UnusablePublicRows, KeyboardInterrupt):
        with pytest.raises(failure, match=r"0\.25"), ledger.spending([of(0.75, 1e-7), of(1.0, people="local")]):
            raise failure(str(ledger.remaining("trusted").epsilon))
        assert ledger.remaining("trusted") == ApproxDP(1.0, 1e-6)
    assert [entry.state for entry in ledger.history()] == ["void"] * 6
    audit(ledger.path)


@pytest.mark.parametrize("failure", [UnusableRows, ZeroDivisionError, MemoryError, ValueError])
def test_a_refusal_by_the_rows_is_an_answer_and_stays_charged(ledger: Ledger, failure: type[Exception]) -> None:
    """Otherwise whoever chooses the rule asks yes/no questions about raw values, as many as they like, for nothing."""
    for left in (0.75, 0.5, 0.25, 0.0):
        with pytest.raises(failure), ledger.spending([of(0.25, 1e-7), of(0.5, people="local")]):
            raise failure
        assert ledger.remaining("trusted").epsilon == left
    assert [entry.state for entry in ledger.history()] == ["refused"] * 8
    with pytest.raises(BudgetExceeded):
        spend(ledger, of(0.25))
    audit(ledger.path)


def test_an_overdraft_writes_nothing(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded):
        ledger.charge([of(0.6), of(0.6)])
    assert ledger.history() == []
    assert ledger.remaining("trusted") == ApproxDP(1.0, 1e-6)
    assert Ledger.open(ledger.path).accounts() == Ledger.open(ledger.path).accounts()
    assert len(before) == ledger.path.stat().st_size


def test_a_collection_is_charged_once(ledger: Ledger) -> None:
    reports = of(1.5, people="local", collection="spring")
    assert len(spend(ledger, reports)) == 1
    for _ in range(3):
        assert spend(ledger, reports) == []
    assert ledger.remaining("local").epsilon == 0.5
    with pytest.raises(BudgetExceeded):
        spend(ledger, of(1.5, people="local", collection="autumn"))


def test_a_named_collection_stays_charged_whatever_fails(ledger: Ledger) -> None:
    """People have sent those reports, and another release may already rely on the charge."""
    reports = of(1.5, people="local", collection="spring")
    with pytest.raises(ValueError, match="bad rows"), ledger.spending([reports]):
        raise ValueError("bad rows")
    assert ledger.remaining("local").epsilon == 0.5
    assert spend(ledger, reports) == []
    with pytest.raises(ValueError, match="bad rows"), ledger.spending([reports]):
        raise ValueError("bad rows")
    assert ledger.remaining("local").epsilon == 0.5


# --- whole numbers ----------------------------------------------------------------------------------------------------


def test_ten_tenths_exhaust_one(ledger: Ledger) -> None:
    for _ in range(10):
        spend(ledger, of(0.1, 1e-7))
    assert ledger.remaining("trusted") == ApproxDP(0.0, 0.0)
    for least in (of(1e-12), of(0.0, 1e-18), of(5e-324)):
        with pytest.raises(BudgetExceeded):
            spend(ledger, least)


@pytest.mark.parametrize("value", [1 / 3, 0.1, 2 / 7, 1e-12, 1e-13, 0.7000000000001, 123.456])
def test_totals_and_charges_round_up_so_that_one_pays_for_the_other(tmp_path: Path, value: float) -> None:
    """By less than a unit (10^-12); a total covers a charge of the same size exactly once."""
    unit = Fraction(1, 10**12)
    books = Ledger.create(tmp_path / "a", {"all": PureDP(value)})
    total = Fraction(audit(books.path)["all"][1]) * unit
    assert 0 <= total - Fraction(repr(value)) < unit
    spend(books, of(value, people="all"))
    with pytest.raises(BudgetExceeded):
        spend(books, of(value, people="all"))
    roomy = Ledger.create(tmp_path / "b", {"all": PureDP(1000)})
    spend(roomy, of(value, people="all"))
    assert 0 <= Fraction(audit(roomy.path)["all"][0]) * unit - Fraction(repr(value)) < unit


def test_entries_say_what_was_charged(ledger: Ledger) -> None:
    charge = Charge("trusted", ApproxDP(0.5, 1e-7), "Gaussian", "mean of pay", "spring", ("gaussian", 2.5))
    (first,) = spend(ledger, charge)
    (entry,) = Ledger.open(ledger.path).history()
    assert (entry.id, entry.people, entry.budget, entry.state) == (first, "trusted", ApproxDP(0.5, 1e-7), "spent")
    assert (entry.mechanism, entry.purpose, entry.collection, entry.noise) == (
        "Gaussian",
        "mean of pay",
        "spring",
        ("gaussian", 2.5),
    )
    assert entry.at.endswith("+00:00")
    accounts = {a.people: a for a in ledger.accounts()}
    assert accounts["trusted"].spent == ApproxDP(0.5, 1e-7)
    assert accounts["local"].spent.epsilon == 0


def test_relations_must_agree(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "a", {"all": PureDP(1.0, Neighbours.ADD_REMOVE)})
    assert books.remaining("all").neighbours is Neighbours.ADD_REMOVE
    with pytest.raises(InvalidInput, match="`neighbours` must be add-remove"):
        spend(books, of(0.1, people="all"))
    with pytest.raises(LedgerProblem, match="must hold an account for the nobody group"):
        spend(books, of(0.1, people="nobody"))


# --- several processes, and death at any moment -----------------------------------------------------------------------

CHILD = """
import os, sys, time
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import Charge, Ledger
from hybridp.public.mechanisms import PureDP
path, log, epsilon, fail_every = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
ledger = Ledger.open(path)
turn = 0
while True:
    turn += 1
    time.sleep(0.002)
    try:
        with ledger.spending([Charge("all", PureDP(epsilon), "m", "p")]) as ids:
            if fail_every and turn % fail_every == 0:
                raise InvalidInput("a rule")
        os.write(out, b"spent %d\\n" % ids[0])
    except InvalidInput:
        os.write(out, b"void %d\\n" % ids[0])
    except BudgetExceeded:
        os.write(out, b"refused\\n")
        break
"""


def child(path: Path, log: Path, epsilon: float, fail_every: int = 0) -> warm.Process:
    return warm.Process(CHILD, str(path), str(log), str(epsilon), str(fail_every))


def test_kill_minus_nine_loses_and_overspends_nothing(tmp_path: Path) -> None:
    """Four rounds of three processes that spend (one voids all charges, one half), killed at a random moment."""
    books = Ledger.create(tmp_path / "a", {"all": PureDP(1000)})
    moments = random.Random(4)
    acknowledged: dict[int, str] = {}
    for turn in range(4):
        logs = [tmp_path / f"{turn}-{i}" for i in range(3)]
        for log in logs:
            log.touch()
        running = [child(books.path, log, 0.01, fail_every=i) for i, log in enumerate(logs)]
        limit = time.monotonic() + 600
        while not all(log.stat().st_size for log in logs) and time.monotonic() < limit:
            time.sleep(0.005)
        for process in running:
            time.sleep(moments.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
        assert [process.wait() for process in running] == [-signal.SIGKILL] * 3
        for log in logs:
            lines = log.read_text().split("\n")[:-1]  # a write is there in full or not at all
            acknowledged |= {int(i): state for state, i in (line.split() for line in lines)}
        reopened = Ledger.open(books.path)
        states = {entry.id: entry.state for entry in reopened.history()}
        assert acknowledged.items() <= states.items()
        # Beyond what was acknowledged, at most one charge a killed process: it stands, which is the safe side.
        assert len(states) - len(acknowledged) <= 3 * (turn + 1)
        audit(books.path)
        spend(reopened, of(0.01, people="all"))
        acknowledged[max(states) + 1] = "spent"
    assert len(acknowledged) > 12
    assert {"spent", "void"} == set(acknowledged.values())


def test_processes_racing_for_the_last_budget(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "a", {"all": PureDP(1.0)})
    logs = [tmp_path / str(i) for i in range(8)]
    running = [child(books.path, log, 0.03) for log in logs]
    assert [process.wait(timeout=600) for process in running] == [0] * 8
    said = [log.read_text().split("\n") for log in logs]
    assert sum(line.startswith("spent") for lines in said for line in lines) == 33
    assert all(lines[-2] == "refused" for lines in said)
    assert audit(books.path)["all"] == (990_000_000_000, 1_000_000_000_000)


def test_only_one_of_many_creators_wins(tmp_path: Path) -> None:
    script = (
        "import sys; from hybridp.ledger import Ledger; from hybridp.errors import LedgerProblem\n"
        "from hybridp.public.mechanisms import PureDP\n"
        "try: Ledger.create(sys.argv[1], {'all': PureDP(float(sys.argv[2]))})\n"
        "except LedgerProblem: sys.exit(2)\n"
    )
    path = tmp_path / "a"
    running = [warm.Process(script, str(path), str(i + 1)) for i in range(6)]
    codes = [process.wait(timeout=600) for process in running]
    assert sorted(codes) == [0, 2, 2, 2, 2, 2]
    assert Ledger.open(path).remaining("all").epsilon == codes.index(0) + 1
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


# --- files ------------------------------------------------------------------------------------------------------------


def refused(action: object) -> str:
    assert callable(action)
    with pytest.raises(LedgerProblem) as refusal:
        action()
    sentence = str(refusal.value)
    assert sentence.startswith("`ledger` must ")
    assert "\n" not in sentence
    assert refusal.value.exit_code == 2
    return sentence


def test_creating_never_overwrites(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, of(0.5))
    before = ledger.path.read_bytes()
    assert "which exists" in refused(lambda: Ledger.create(ledger.path, {"trusted": PureDP(9.0)}))
    (tmp_path / "letter").write_text("dear")
    refused(lambda: Ledger.create(tmp_path / "letter", {"trusted": PureDP(9.0)}))
    refused(lambda: Ledger.create(tmp_path / "no" / "where", {"trusted": PureDP(9.0)}))
    assert ledger.path.read_bytes() == before
    assert (tmp_path / "letter").read_text() == "dear"


def test_foreign_missing_and_damaged_files_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    assert "existing ledger file" in refused(lambda: Ledger.open(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()
    refused(lambda: Ledger.open(tmp_path))
    files = {
        "text": b"a letter to a friend, longer than a hundred bytes" * 9,
        "empty": b"",
        "noise": random.Random(1).randbytes(20_000),
        "cut": ledger.path.read_bytes()[:5000],
        "page": ledger.path.read_bytes()[:4096] + random.Random(3).randbytes(ledger.path.stat().st_size - 4096),
        "head": b"SQLite format 3\x00" + random.Random(2).randbytes(4080),
    }
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)

        def use(path: Path = path) -> None:
            spend(Ledger.open(path), of(0.1))

        refused(use)
        assert path.read_bytes() == content


def test_another_database_and_another_version_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "other.db")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE accounts (people TEXT)")
    db.commit()
    db.close()
    before = (tmp_path / "other.db").read_bytes()
    assert "hybridp ledger" in refused(lambda: Ledger.open(tmp_path / "other.db"))
    assert (tmp_path / "other.db").read_bytes() == before
    db = sqlite3.connect(ledger.path)
    db.execute("PRAGMA user_version = 7")
    db.close()
    assert "version 7" in refused(lambda: Ledger.open(ledger.path))


READ_ONLY = """
import os, sys
from hybridp.errors import LedgerProblem
from hybridp.ledger import Charge, Ledger
from hybridp.public.mechanisms import PureDP
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)  # permissions do not bind root
ledger = Ledger("study.ledger")
ran = False
try:
    with ledger.spending([Charge("trusted", PureDP(0.1), "m", "p")]):
        ran = True
except LedgerProblem as problem:
    print(problem)
sys.exit(9 if ran else 0)
"""


def test_a_read_only_file_is_refused_before_the_body_runs(ledger: Ledger, tmp_path: Path) -> None:
    ledger.path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        done = warm.run(READ_ONLY, str(tmp_path))
    finally:
        tmp_path.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("`ledger` must be a readable and writable ledger file.")
    assert done.stdout.count("\n") == 1


def test_nobody_means_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="`totals` must name at least one group"):
        Ledger.create(tmp_path / "a", {})
    with pytest.raises(InvalidInput, match="`epsilon` must be below one million"):
        Ledger.create(tmp_path / "a", {"all": PureDP(math.inf)})
    assert list(tmp_path.iterdir()) == []


# --- limits that the file format sets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [math.inf, 1e9])
def test_an_enormous_charge_is_an_overdraft_like_any_other(ledger: Ledger, epsilon: float) -> None:
    with pytest.raises(BudgetExceeded):
        spend(ledger, of(epsilon))


def test_one_collection_has_one_price(ledger: Ledger) -> None:
    spend(ledger, of(0.1, people="local", collection="spring"))
    with pytest.raises(InvalidInput):
        spend(ledger, of(1.9, people="local", collection="spring"))


def test_one_collection_has_one_digest(ledger: Ledger) -> None:
    one = replace(of(0.5, people="local", collection="spring"), digest="a")
    assert len(spend(ledger, one)) == 1
    assert spend(ledger, one) == spend(ledger, replace(one, collection=None)) == []
    with pytest.raises(InvalidInput, match="another name, or none"):
        spend(ledger, replace(one, digest="b"))
    assert len(spend(ledger, replace(one, digest="b", collection=None))) == 1
    assert ledger.remaining("local").epsilon == 1.0


def test_a_ledger_that_vanished_does_not_come_back_empty(ledger: Ledger) -> None:
    ledger.path.unlink()
    refused(lambda: spend(ledger, of(0.1)))
    assert not ledger.path.exists()
