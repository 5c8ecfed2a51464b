"""What was paid for is kept before it is shown: a full disk, a closed pipe or a crash loses no release."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.results import sole

from hybridp.ledger import Ledger
from hybridp.public.mechanisms import PureDP
from tests import warm

from .conftest import Runner

RELEASE = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1"
MEAN = f"release mean trusted.csv {RELEASE}"
NOT_SHOWN = 4


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Trusted people only: a real release, with nothing simulated."""
    rows = [f"{20_000 + 137 * i},trusted," for i in range(120)]
    (tmp_path / "trusted.csv").write_text("\n".join(["pay,trust,report", *rows]) + "\n")
    return tmp_path


def process(
    folder: Path, line: str, *, before: str = "", stdout: Any = None, stderr: Any = None
) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own, after some lines of Python that break something."""
    code = f"import sys\n{before}\nfrom hybridp.cli.app import main\nmain(sys.argv[1:])"
    return warm.run(code, *line.split(), cwd=folder, stdout=stdout, stderr=stderr)


def kept(folder: Path, number: int = 1) -> dict[str, Any]:
    return Ledger.open(folder / "l.ledger").release(number)


@pytest.mark.usefixtures("people")
def test_the_kept_release_is_the_published_one(run: Runner) -> None:
    told = run(f"{MEAN} --ledger l.ledger --out one.json --json").document
    assert told["receipt"]["asked"]["release"] == 1
    assert json.loads(Path("one.json").read_text()) == told
    again = run("ledger show l.ledger --release 1 --json").document
    assert again == {name: value for name, value in told.items() if name != "ledger"}
    asked = again["receipt"]["asked"]
    assert asked["purpose"] == "pay"
    assert asked["columns"]["questions"] == {"pay": ["pay"]}
    assert (asked["study"]["questions"][0]["lower"], asked["study"]["questions"][0]["upper"]) == (0, 100_000)
    assert asked["version"]
    assert asked["at"]
    (listed,) = run("ledger show l.ledger --json").document["releases"]
    assert (listed["id"], listed["ledger_entries"]) == (1, told["receipt"]["ledger_entries"])
    text = run("ledger show l.ledger --release 1").out
    assert "estimate:" in text
    assert "purpose: pay" in text
    refused = run("ledger show l.ledger --release 2 --json")
    assert (refused.code, "1 to 1" in refused.document["error"]["message"]) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("broken", ["full", "closed"])
def test_a_stdout_that_cannot_be_written_loses_nothing(people: Path, broken: str) -> None:
    if broken == "full":
        write = os.open("/dev/full", os.O_WRONLY)
    else:
        read, write = os.pipe()
        os.close(read)
    try:
        found = process(people, f"{MEAN} --ledger l.ledger", stdout=write)
    finally:
        os.close(write)
    assert found.returncode == NOT_SHOWN
    assert "`hybridp ledger show l.ledger --release 1` shows it again, for free." in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr
    assert "Exception ignored" not in found.stderr
    assert sole(kept(people))["estimate"] is not None


FULL = (
    "import matplotlib.figure as f\ndef full(*a, **k): raise OSError(28, 'No space left on device')\n"
    "f.Figure.savefig = full"
)
DEATH = "import hybridp.release.release as r, os\nr.Release.plot = lambda *a, **k: os._exit(9)"
STOP = "import hybridp.release.release as r\ndef stop(*a, **k): raise KeyboardInterrupt\nr.Release.plot = stop"


@pytest.mark.parametrize(
    ("before", "code"),
    [(FULL, NOT_SHOWN), (DEATH, 9), (STOP, 130)],
    ids=["full", "death", "stop"],
)
def test_a_picture_that_fails_loses_nothing(people: Path, before: str, code: int) -> None:
    found = process(people, f"{MEAN} --ledger l.ledger --plot p.png --json", before=before)
    assert found.returncode == code
    assert "Traceback" not in found.stderr
    assert sole(kept(people))["estimate"] is not None
    assert Ledger.open(people / "l.ledger").remaining("trusted").epsilon == 0
    assert {file.name for file in people.iterdir()} == {"trusted.csv", "l.ledger"}
    if code == NOT_SHOWN:  # the figures are shown all the same, with the problem beside them
        told = json.loads(found.stdout)
        assert sole(told)["estimate"] == sole(kept(people))["estimate"]
        assert "`--plot` p.png could not be written" in told["problems"][0]
    if code != 9:
        assert "hybridp ledger show l.ledger --release 1" in found.stderr


def test_without_a_ledger_an_unwritable_file_still_shows_the_release(people: Path) -> None:
    before = "import os\ndef full(*a): raise OSError(28, 'No space left on device')\nos.fsync = full"
    found = process(people, f"{MEAN} --out one.json --json", before=before)
    assert found.returncode == NOT_SHOWN
    assert sole(json.loads(found.stdout))["estimate"] is not None
    assert "kept nowhere" in found.stderr
    assert {file.name for file in people.iterdir()} == {"trusted.csv"}


@pytest.mark.usefixtures("people")
def test_a_ledger_that_cannot_keep_the_release_shows_nothing_and_voids(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own limit of pages stands for the full disk: the charge fits, the document does not."""
    import hybridp.ledger as module

    Ledger.create("l.ledger", {"trusted": PureDP(2.0), "local": PureDP(2.0)})
    assert run(f"{MEAN} --ledger l.ledger --json").code == 0  # the file's last page has no room for another one
    usual = module._connection

    def small(path: Path) -> Any:
        import contextlib

        @contextlib.contextmanager
        def limited() -> Any:
            with usual(path) as db:
                (pages,) = db.execute("PRAGMA page_count").fetchone()
                db.execute(f"PRAGMA max_page_count = {pages}")
                yield db

        return limited()

    monkeypatch.setattr(module, "_connection", small)
    found = run(f"{MEAN} --ledger l.ledger --json")
    assert found.code == 2
    assert set(found.document) == {"error"}
    assert "nothing was shown" in found.document["error"]["message"]
    monkeypatch.setattr(module, "_connection", usual)
    books = Ledger.open("l.ledger")
    assert len(books.releases()) == 1
    assert books.remaining("trusted").epsilon == 1.0
    assert [entry.state for entry in books.history()] == ["spent", "void"]


def test_a_charge_that_cannot_be_voided_stands_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybridp.errors import LedgerProblem
    from hybridp.ledger import Charge

    books = Ledger.create(tmp_path / "l.ledger", {"all": PureDP(1.0)})

    def full(ids: list[int], state: str) -> None:
        raise LedgerProblem("full")

    monkeypatch.setattr(books, "_end", full)
    with (
        pytest.raises(LedgerProblem, match=r"Nothing was released, but its charge .* stands\."),
        books.spending([Charge("all", PureDP(1.0), "any", "test")]),
    ):
        raise LedgerProblem("The disk is full.")
    assert books.remaining("all").epsilon == 0


def test_what_is_interrupted_before_it_is_shown_is_not_kept(tmp_path: Path) -> None:
    from hybridp.ledger import Charge

    books = Ledger.create(tmp_path / "l.ledger", {"all": PureDP(2.0)})
    charges = [Charge("all", PureDP(1.0), "any", "test")]
    with books.spending(charges) as ids:
        books.keep("shown", ids, lambda number: {"number": number})

    def stopped() -> None:
        with books.spending(charges) as ids:
            books.keep("not shown", ids, lambda number: {"number": number})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [(kept.id, kept.purpose) for kept in books.releases()] == [(1, "shown")]
    assert books.remaining("all").epsilon == 1.0


FULL_WRITE = (
    "import pathlib\nusual = pathlib.Path.{name}\ndef full(self, *a, **k):\n"
    "    if {here}: raise OSError(28, 'No space left on device')\n"
    "    return usual(self, *a, **k)\npathlib.Path.{name} = full"
)
TERMS = "--person person --column word --trust trust"
DISCOVER = f"release heavy-hitters words.csv {TERMS} --record-key key --epsilon 1 --delta 1e-3 --invite-out invite.json"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    rows = [f"{i},{i * 7919},{'pear' if i % 2 else 'plum'},{'trusted' if i % 3 else 'local'}" for i in range(900)]
    (tmp_path / "words.csv").write_text("\n".join(["person,key,word,trust", *rows]) + "\n")
    return tmp_path


def test_an_invitation_that_cannot_be_written_is_printed_again_and_answered(words: Path) -> None:
    before = FULL_WRITE.format(name="write_bytes", here="'invite.json' in self.name")
    found = process(words, f"{DISCOVER} --ledger l.ledger", before=before)
    again = "hybridp ledger show l.ledger --release 1 --json"
    assert found.returncode == NOT_SHOWN
    assert found.stderr.splitlines()[-1] == (
        "hybridp: The invitation was made, but `invite-out` invite.json could not be written (No space left on "
        f"device); `{again}` prints it again, for free."
    )
    assert {file.name for file in words.iterdir()} == {"words.csv", "l.ledger"}
    (words / "again.json").write_text(process(words, again.removeprefix("hybridp ")).stdout)
    answer = f"randomise again.json words.csv {TERMS} --record-key key --epsilon 9 --out reports.csv"
    assert process(words, answer).returncode == 0
    assert process(words, "release again.json reports.csv --ledger l.ledger").returncode == 0
    assert Ledger.open(words / "l.ledger").remaining("trusted").epsilon == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_broken_stderr_takes_no_release_away(people: Path) -> None:
    """The remark that a ledger was made comes after the charge: where nobody hears it, the figures still come."""
    with open("/dev/full", "w") as full:
        found = process(people, f"{MEAN} --ledger l.ledger --json", stderr=full)
    assert found.returncode == 0
    assert sole(json.loads(found.stdout))["estimate"] == sole(kept(people))["estimate"]


FIT = "synth fit rows.csv --bins age=0,20,40 --other last --marginals age --epsilon 1 --delta 1e-6 --out model "
FIT += "--ledger l.ledger"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("age\n" + "\n".join(str(i % 40) for i in range(200)) + "\n")
    return tmp_path


def test_a_full_disk_after_a_fit_says_that_it_was_paid_for(rows: Path) -> None:
    before = (
        "import os\nusual = os.fsync\ndef full(n):\n"
        "    if 'transcript.json' in os.readlink(f'/proc/self/fd/{n}'): raise OSError(28, 'No space left on device')\n"
        "    usual(n)\nos.fsync = full"
    )
    found = process(rows, FIT, before=before)
    assert found.returncode == 4
    assert "The release was made, but `model`" in found.stderr
    assert not (rows / "model").exists()
    assert process(rows, FIT).returncode == 3
    ledger = Ledger.open(rows / "l.ledger")
    assert ({entry.state for entry in ledger.history()}, len(ledger.releases())) == ({"spent"}, 1)
