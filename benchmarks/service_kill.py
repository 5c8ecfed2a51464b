"""kill -9 at random moments, under load, on both stores: nothing acknowledged is lost, nothing is spent twice.

    python -m benchmarks.service_kill [--kills 500] [--stores sqlite postgres]

A child process opens the service, takes uploads from 24 tasks at once and releases studies from two threads; it writes
a line for everything that was acknowledged. After a random time it is killed. Then the database is checked, and the
next child goes on with it. The invariants: every acknowledged report is there, with every acknowledged token used; the
counters agree with the rows; every release is whole, is charged exactly once and was not changed; no account is
overdrawn. Another part, without kills: 16 threads release at once against a budget that pays for fewer.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "audit", "contend", "main", "torment"]

ASKER = {"purpose": "to measure", "contact": "none"}
PLAN: dict[str, Any] = {
    "title": "t",
    "asked_by": "nobody",
    "promise": 0.25,
    "collection": {
        "purpose": "to measure",
        "contact": "none",
        "releases": 8,
        "delete_raw_after_release": False,
        "min_batch": 4,
        "time_precision": 60,
    },
    "questions": [{"name": "x", "kind": "number", "lower": 0, "upper": 100}],
}


# --- the child --------------------------------------------------------------------------------------------------------


def _say(*parts: str) -> None:
    """One line in one write: whole or not there at all."""
    os.write(1, (" ".join(parts) + "\n").encode())


def _report(token: str | None = None, *, trusted: bool = False) -> dict[str, Any]:
    from hybridp.service.studies import new_report_id, rounded_now

    local = {"reports": {"x": {"threshold": random.getrandbits(32), "above": True}}}
    return {
        "id": new_report_id(),
        "time": rounded_now({"time_precision": 60}),
        "group": "trusted" if trusted else "local",
        "payload": {"answers": {"x": 50.0}} if trusted else local,
        "token": token,
    }


async def _upload(service: Any, study: str, tokens: list[str]) -> None:
    from hybridp.service.studies import submit

    while True:
        token = tokens.pop() if tokens and random.random() < 0.3 else None
        rows = [_report(token, trusted=random.random() < 0.3)] if token else [_report(trusted=random.random() < 0.3)]
        where = study.split()[1 if token else 0]
        if await submit(service, where, rows) == []:
            _say("ack", where, rows[0]["id"], token or "-")


def _release_all(service: Any) -> None:
    from hybridp.errors import BudgetExceeded
    from hybridp.service import studies

    while True:
        study = studies.create_study(service, PLAN)["id"]
        asyncio.run(studies.submit(service, study, [_report(trusted=i % 2 == 0) for i in range(20)]))
        studies.close_study(service, study)
        keys = [f"key-{i}" for i in range(12)] * 2
        random.shuffle(keys)
        for key in keys:
            try:
                found = studies.release_study(service, study, key)
            except BudgetExceeded:
                continue
            _say("rel", study, key, hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest())


def _work(database: str, key_file: str, study: str) -> None:
    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings

    random.seed()
    service = Service(Settings.from_environment(database, key_file, limits=Limits(rate=0)))
    _say("ready", str(os.getpid()))
    # Half of the children use invitations; groups without any are written by the short way.
    tokens = studies.invite(service, study.split()[1], 500) if random.random() < 0.5 else []
    for _ in range(2):
        threading.Thread(target=_release_all, args=(service,), daemon=True).start()

    async def run() -> None:
        await asyncio.gather(*(_upload(service, study, tokens) for _ in range(24)))

    asyncio.run(run())


def _nursery(database: str, key_file: str, study: str) -> None:
    """Loads everything once and makes a new child, by fork, for each line on its input."""
    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.settings import Settings

    # One release from beginning to end: what is imported on the way need not be imported by every child.
    warm = Service(Settings.from_environment("sqlite://", key_file))
    first = studies.create_study(warm, PLAN)["id"]
    asyncio.run(studies.submit(warm, first, [_report(trusted=i % 2 == 0) for i in range(20)]))
    studies.close_study(warm, first)
    studies.release_study(warm, first)
    warm.close()
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            _work(database, key_file, study)
        os.waitpid(child, 0)
        _say("gone")


# --- checking ---------------------------------------------------------------------------------------------------------


class Outcome(Counter[str]):
    """What was counted: kills, acknowledged reports and releases, and how many of each broke a rule."""

    @property
    def broken(self) -> int:
        return sum(n for name, n in self.items() if name.startswith("BROKEN"))


def _check_reports(db: Any, keys: Any, acks: list[tuple[str, str, str]], found: Outcome) -> None:
    import base64

    from sqlalchemy import select

    from hybridp.service.schema import invitations, reports, studies, study_keys
    from hybridp.service.settings import RowCipher, hashed

    for study in {a[0] for a in acks}:
        number = db.execute(select(studies.c.number).where(studies.c.id == study)).scalar_one()
        sealed = db.execute(select(study_keys.c.sealed).where(study_keys.c.study == number)).scalar_one()
        cipher = RowCipher(keys.unseal(bytes(sealed)), number)
        mine = [a for a in acks if a[0] == study]
        for start in range(0, len(mine), 5000):
            some = mine[start : start + 5000]
            ids = {cipher.row(base64.urlsafe_b64decode(a[1] + "==")) for a in some}
            there = db.execute(select(reports.c.id).where(reports.c.study == number, reports.c.id.in_(ids)))
            found["BROKEN acknowledged reports lost"] += len(ids - {bytes(r[0]) for r in there})
            tokens = {hashed(a[2]) for a in some if a[2] != "-"}
            used = (invitations.c.study == number, invitations.c.token.in_(tokens), invitations.c.used)
            there = db.execute(select(invitations.c.token).where(*used))
            found["BROKEN acknowledged tokens unused"] += len(tokens - {bytes(r[0]) for r in there})


def _check_counters(db: Any, found: Outcome, since: int) -> None:
    from sqlalchemy import func, select

    from hybridp.service.schema import accounts, charges, invitations, participation, progress, releases, reports

    for row in db.execute(select(progress).where((progress.c.study > since) | (progress.c.study <= 2))).all():
        here = row.study
        rows = db.execute(select(func.count()).where(reports.c.study == here)).scalar_one()
        people = db.execute(select(func.sum(participation.c.people)).where(participation.c.study == here)).scalar()
        used = db.execute(select(func.count()).where(invitations.c.study == here, invitations.c.used)).scalar_one()
        agree = rows == row.taken == int(people or 0) and used == row.tokens_used
        found["BROKEN counters"] += not agree
        made = db.execute(select(releases).where(releases.c.study == here)).all()
        paid = db.execute(select(charges).where(charges.c.study == here)).all()
        ids: list[int] = []
        for release in made:
            try:
                ids += json.loads(release.document)["receipt"]["ledger_entries"]
                found["BROKEN half-written releases"] += 0
            except (ValueError, LookupError):
                found["BROKEN half-written releases"] += 1
        # Every charge belongs to exactly one release, and the trusted group pays once for each.
        found["BROKEN charges without a release, or twice"] += sorted(ids) != sorted(c.id for c in paid)
        trusted = [c for c in paid if c.people == "trusted"]
        found["BROKEN releases not charged once"] += len(trusted) != len(made)
        for account in db.execute(select(accounts).where(accounts.c.study == here)).all():
            spent = sum(c.epsilon for c in paid if c.people == account.people)
            found["BROKEN budget spent twice"] += spent != account.epsilon_spent
            found["BROKEN overdrawn"] += account.epsilon_spent > account.epsilon_total


def _check_releases(db: Any, told: dict[tuple[str, str], str], found: Outcome) -> None:
    from sqlalchemy import select

    from hybridp.service.schema import releases, studies

    for (study, key), digest in told.items():
        query = select(releases.c.document).join(studies, studies.c.number == releases.c.study)
        text = db.execute(query.where(studies.c.id == study, releases.c.key == key)).scalar()
        same = text is not None and digest == hashlib.sha256(
            json.dumps(json.loads(text), sort_keys=True).encode()
        ).hexdigest()  # fmt: skip
        found["BROKEN acknowledged releases lost or changed"] += not same


# --- killing ----------------------------------------------------------------------------------------------------------


class _Killer:
    """SIGKILL after a while; after ten seconds in any case."""

    def __init__(self, child: int, wait: float | None) -> None:
        self._child = child
        self._timer = threading.Timer(10.0 if wait is None else wait, os.kill, (child, signal.SIGKILL))
        self._armed = wait is not None
        self._timer.start()

    def start(self, wait: float) -> None:
        if not self._armed:
            self._armed = True
            self._timer.cancel()
            self._timer = threading.Timer(wait, os.kill, (self._child, signal.SIGKILL))
            self._timer.start()


def audit(
    engine: Any, keys: Any, acks: list[tuple[str, str, str]], told: dict[tuple[str, str], str], since: int = 0
) -> Outcome:
    """Every invariant, for what was acknowledged and for the studies from a number on."""
    from hybridp.service.store import reading

    found = Outcome()
    with reading(engine) as db:
        _check_reports(db, keys, acks, found)
        _check_releases(db, told, found)
        _check_counters(db, found, since)
    return found


def torment(
    database: str, folder: Path, kills: int, *, longest: float = 0.4, seed: int = 1
) -> tuple[Outcome, list[tuple[str, str, str]], dict[tuple[str, str], str]]:
    """Kill as often as asked, check after each kill, check everything at the end; and what was acknowledged."""
    from sqlalchemy import func, select

    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.schema import connect, progress
    from hybridp.service.settings import Limits, Settings
    from hybridp.service.store import reading

    key_file = folder / "kill.key"
    service = Service(Settings.from_environment(database, key_file, limits=Limits(rate=0)))
    open_one = studies.create_study(service, PLAN)["id"]
    invited = studies.create_study(service, PLAN | {"collection": PLAN["collection"] | {"by_invitation": True}})["id"]
    keys = service.settings.keys
    service.close()
    engine = connect(database)
    found = Outcome(kills=0)
    every: list[tuple[str, str, str]] = []
    told: dict[tuple[str, str], str] = {}
    moments = random.Random(seed)
    command = [sys.executable, __file__, "--nursery", database, str(key_file), f"{open_one} {invited}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        try:
            for _ in range(kills):
                nursery.stdin.write("go\n")
                nursery.stdin.flush()
                ready = nursery.stdout.readline().split()
                assert ready[0] == "ready", ready
                # Most often counted from the first acknowledgement, when everything is in full swing.
                child, wait = int(ready[1]), moments.uniform(0, longest)
                killer = _Killer(child, wait if moments.random() < 0.2 else None)
                acks: list[tuple[str, str, str]] = []
                fresh: dict[tuple[str, str], str] = {}
                for line in nursery.stdout:
                    kind, *rest = line.split()
                    if kind == "gone":
                        break
                    killer.start(wait)
                    if kind == "ack":
                        acks.append((rest[0], rest[1], rest[2]))
                    elif kind == "rel":
                        before = (told | fresh).get((rest[0], rest[1]), rest[2])
                        found["BROKEN release answered in two ways"] += before != rest[2]
                        fresh[rest[0], rest[1]] = rest[2]
                with reading(engine) as db:
                    newest = int(db.execute(select(func.max(progress.c.study))).scalar_one())
                found.update(audit(engine, keys, acks, fresh, newest - 6))
                every += acks
                told |= fresh
                found["kills"] += 1
        finally:
            nursery.stdin.close()
    found.update(audit(engine, keys, every, told))
    engine.dispose()
    found["acknowledged reports"] += len(every)
    found["acknowledged releases"] += len(told)
    return found, every, told


def contend(database: str, rounds: int, *, threads: int = 16, pays_for: int = 5) -> Outcome:
    """All threads release at once against a budget that pays for fewer, round after round."""
    from hybridp import ledger as rule
    from hybridp.errors import BudgetExceeded
    from hybridp.ledger import Charge
    from hybridp.public.mechanisms import PureDP
    from hybridp.service.schema import begun, connect, prepare
    from hybridp.service.store import reading, writing
    from hybridp.service.studies import book, release_once

    engine = connect(database, pool_size=threads)
    prepare(engine)
    found = Outcome()
    charge = [Charge("trusted", PureDP(0.1), "m", "p")]
    barrier = threading.Barrier(threads)

    def release(study: int, who: int, done: list[bool]) -> None:
        barrier.wait()
        try:
            # Two threads share each key: a second identical request must not be charged.
            with writing(engine) as db:
                done.append(release_once(db, study, f"k{who // 2}", "final", charge, lambda ids: {"ids": list(ids)})[1])
        except BudgetExceeded:
            found["refused"] += 1

    base = 10_000_000
    for turn in range(rounds):
        study = base + turn
        with writing(engine) as db:
            db.execute(begun(study, "closed"))
            rule.open_accounts(book(db, study), {"trusted": PureDP(0.1 * pays_for)})
        done: list[bool] = []
        crowd = [threading.Thread(target=release, args=(study, i, done)) for i in range(threads)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        with reading(engine) as db:
            (account,) = rule.accounts(book(db, study))
        found["releases"] += sum(done)
        found["repeated"] += len(done) - sum(done)
        found["BROKEN overspent"] += account.spent.epsilon > account.total.epsilon
        found["BROKEN spent otherwise than released"] += abs(account.spent.epsilon - 0.1 * sum(done)) > 1e-12
        found["BROKEN budget left over"] += sum(done) != min(pays_for, threads // 2)
        found["rounds"] += 1
    engine.dispose()
    return found


def _show(store: str, part: str, found: Outcome, seconds: float) -> None:
    print(f"{store:9} {part}: {seconds:.0f} s")
    for name, n in sorted(found.items()):
        print(f"    {name:48} {n:10,}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_kill", description=(__doc__ or "").strip())
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--nursery", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.nursery:
        _nursery(*arguments.nursery)
        return 0
    broken = 0
    with tempfile.TemporaryDirectory() as name:
        for store in arguments.stores:
            if store == "sqlite":
                broken += _run(store, f"sqlite:///{name}/kill.db", Path(name), arguments)
            else:
                from tools.throwaway import postgres

                with postgres() as url:
                    broken += _run(store, url, Path(name), arguments)
    print(f"broken invariants: {broken}")
    return 1 if broken else 0


def _run(store: str, url: str, folder: Path, arguments: argparse.Namespace) -> int:
    began = time.perf_counter()
    killed, _, _ = torment(url, folder, arguments.kills)
    _show(store, "killed", killed, time.perf_counter() - began)
    began = time.perf_counter()
    fought = contend(url, arguments.rounds)
    _show(store, "16 threads", fought, time.perf_counter() - began)
    return killed.broken + fought.broken


if __name__ == "__main__":
    sys.exit(main())
