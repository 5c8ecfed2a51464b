"""Ten million stored reports: how long the study's page, its list and its release take, and how much memory.

    python -m benchmarks.service_release [--reports 1e5 1e6 1e7] [--trusted 0.02] [--stores sqlite postgres] [--plot F]

Local reports are put into the store by one statement, trusted ones as if uploaded. The page is `study_summary`, all
that the page reads; the release is read, decrypted, noised, charged and stored. Each is measured in a child process
of its own, so that its peak memory is its own. Target: the page in under 300 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

PLAN = {
    "title": "t",
    "asked_by": "nobody",
    "promise": 1.0,
    "collection": {"purpose": "to measure", "contact": "none", "releases": 2, "delete_raw_after_release": False},
    "questions": [{"name": "x", "kind": "number", "lower": 0, "upper": 100}],
}
TARGET = 0.3


def fill(database: str, key_file: Path, reports: int, trusted: float) -> str:
    """A study with so many reports, spread over thirty days: local ones by one statement, trusted ones as uploaded."""
    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.formats import NUMBER, Packed
    from hybridp.service.schema import TRUSTED
    from hybridp.service.settings import Settings
    from hybridp.service.store import Batch, Commits, writing

    service = Service(Settings.from_environment(database, key_file))
    name = str(studies.create_study(service, PLAN)["id"])
    view = service.view(name)
    study, now = view.study.number, int(time.time()) // 3600 * 3600
    cipher = view.cipher
    assert cipher is not None
    local = reports - int(reports * trusted)
    with writing(service.engine) as db:
        made = _POSTGRES if db.dialect.name == "postgresql" else _SQLITE
        db.exec_driver_sql(made.format(n=local, study=study, now=now))
        db.exec_driver_sql(
            "INSERT INTO participation (study, start, grp, people) SELECT study, at, grp, count(*) "
            f"FROM reports WHERE study = {study} GROUP BY study, at, grp"
        )
        db.exec_driver_sql(f"UPDATE progress SET taken = {local} WHERE study = {study}")
    store = Commits(service.engine)
    for start in range(0, reports - local, 4000):
        rows = []
        for _ in range(min(4000, reports - local - start)):
            raw = os.urandom(16)
            rows.append(Packed(raw, now, TRUSTED, None, cipher.seal(NUMBER.pack(40.0), raw), None, ""))
        store.commit([Batch(study, 1, 3600, rows)])
    store.drop()
    studies.close_study(service, name)
    service.close()
    return name


_SQLITE = """
WITH RECURSIVE number(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM number WHERE i + 1 < {n})
INSERT INTO reports (study, id, at, grp, epsilon, body)
SELECT {study}, randomblob(16), {now} - 3600 * (abs(random()) % 720), 0, NULL, CAST(randomblob(4) || x'01' AS BLOB)
FROM number
"""
_POSTGRES = """
INSERT INTO reports (study, id, at, grp, epsilon, body)
SELECT {study}, uuid_send(gen_random_uuid()), {now} - 3600 * floor(random() * 720)::bigint, 0, NULL,
       int4send((random() * 2000000000)::int) || decode('01', 'hex')
FROM generate_series(0, {n} - 1) AS i
"""


def peak() -> int:
    """KiB. The kernel's own high-water mark of this program: ru_maxrss also remembers the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("no VmHWM")


def measure(what: str, database: str, key_file: str, study: str) -> None:
    """A child's whole work: one JSON line."""
    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.settings import Settings

    service = Service(Settings.from_environment(database, key_file))
    before = peak()
    times = []
    for turn in range(5 if what != "release" else 1):
        began = time.perf_counter()
        if what == "page":
            studies.study_summary(service, study)
        elif what == "list":
            studies.list_studies(service)
        else:
            studies.release_study(service, study, f"turn {turn}")
        times.append(time.perf_counter() - began)
    after = peak()
    service.close()
    print(json.dumps({"first": times[0], "best": min(times), "cpu": time.process_time(),
                      "peak": after / 2**10, "more": (after - before) / 2**10}))  # fmt: skip


def child(what: str, database: str, key_file: Path, study: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", what, database, str(key_file), study]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def table(store: str, url: str, folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for size in arguments.reports:
        here = url.replace("study.db", f"study-{int(size)}.db")
        began = time.perf_counter()
        study = fill(here, folder / "key", int(size), arguments.trusted)
        filled = time.perf_counter() - began
        page, every, release = (child(what, here, folder / "key", study) for what in ("page", "list", "release"))
        text = f"{store:9} {size:12,.0f} reports ({size / filled:7,.0f}/s stored)  page {1e3 * page['first']:6.1f} ms"
        text += f"  list {1e3 * every['first']:6.1f} ms  release {release['first']:7.1f} s"
        print(f"{text}  peak {release['peak']:6.0f} MiB ({release['more']:+.0f} while releasing)", flush=True)
        rows.append({"reports": size, "page": page["first"], "release": release["first"], "peak": release["peak"]})
    return rows


def picture(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """How page, release and memory grow."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for axis, name, unit in zip(axes, ("page", "release", "peak"), ("s", "s", "MiB"), strict=True):
        for store, rows in results.items():
            axis.loglog([r["reports"] for r in rows], [r[name] for r in rows], "o-", label=store)
        axis.set(xlabel="stored reports", ylabel=f"{name} ({unit})")
        axis.grid(alpha=0.3)
    axes[0].axhline(TARGET, color="0.5", ls="--")
    axes[0].legend()
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_release", description=(__doc__ or "").strip())
    parser.add_argument("--reports", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--trusted", type=float, default=0.02)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        measure(*arguments.measure)
        return 0
    results = {}
    with tempfile.TemporaryDirectory() as name:
        for store in arguments.stores:
            if store == "sqlite":
                results[store] = table(store, f"sqlite:///{name}/study.db", Path(name), arguments)
            else:
                from tools.throwaway import postgres

                with postgres() as url:
                    results[store] = table(store, url, Path(name), arguments)
    if arguments.plot is not None:
        picture(results, arguments.plot)
    slowest = max(row["page"] for rows in results.values() for row in rows)
    print(f"slowest page {1e3 * slowest:.0f} ms: {'below' if slowest < TARGET else 'NOT below'} {1e3 * TARGET:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
