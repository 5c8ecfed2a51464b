"""Walk: how many of the library's files and functions one salary passes on its way to a release.

    python -m benchmarks.walk [--list]

`trusted`  a salary in a CSV, labelled `trusted`: from the table to the release, its plain form and its text.
`local`    a salary that stays at home: the study's task from the service, the report drawn on the device and sent, the
           service's store, and the release that the analyst asks for.

Counted with `sys.setprofile`: functions of the package that are entered at least once, and the files that they are in.
Modules' own code, comprehensions and lambdas are left out. Nothing is timed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import hybridp

ROOT = Path(hybridp.__file__).parent
Passed = set[tuple[str, str]]


@contextmanager
def walking() -> Iterator[Passed]:
    """The functions that are entered, as (file, name), in every thread that starts here."""
    passed: Passed = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{ROOT}/") and not code.co_name.startswith("<"):
            passed.add((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield passed
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def trusted_salary(folder: Path) -> Passed:
    from hybridp.curator.sums import Columns
    from hybridp.protocols.driver import release as release_mean
    from hybridp.public.mechanisms import PureDP
    from hybridp.public.randomisers import Bounds
    from hybridp.tasks.mean import MeanTask

    file = folder / "salaries.csv"
    file.write_text("salary,trust\n52000,trusted\n61000,trusted\n")
    with walking() as passed:
        study = MeanTask(Bounds(0, 200_000), PureDP(1.0))
        found = release_mean(file, study, Columns("salary", "trust", missing="middle"))
        found.to_dict()
        str(found.receipt)
    return passed


def local_salary(folder: Path) -> Passed:
    from hybridp.device.client import local_report
    from hybridp.noise import secure
    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings

    where = f"sqlite:///{folder / 'study.db'}", folder / "hybridp.key", "http://localhost", Limits(rate=0)
    question = {"name": "salary", "kind": "number", "lower": 0, "upper": 200_000}
    collection = {"min_batch": 2, "time_precision": 60, "purpose": "to try", "contact": "none"}
    plan = {
        "title": "Salaries",
        "asked_by": "nobody",
        "promise": 1.0,
        "collection": collection,
        "questions": [question],
    }
    with walking() as passed:  # the service's writer is a thread of its own, which must start inside
        service = Service(Settings.from_environment(*where))
        study = studies.create_study(service, plan)["id"]
        passed.clear()
        task = studies.task_document(service, study)
        sent = [local_report(task, salary, rng=secure()) for salary in (52_000.0, 61_000.0)]
        assert asyncio.run(studies.submit(service, study, sent)) == []
        studies.close_study(service, study)
        studies.release_study(service, study, "first")
        walked = set(passed)
        service.close()
    return walked


WALKS: dict[str, Callable[[Path], Passed]] = {"trusted": trusted_salary, "local": local_salary}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the files, and how many functions of each")
    options = parser.parse_args(arguments)
    for name, walk in WALKS.items():
        # In a process of its own: what one walk has cached, another does not pass.
        with (
            tempfile.TemporaryDirectory(prefix="hybridp-") as folder,
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child,
        ):
            passed = child.submit(walk, Path(folder)).result()
        files = sorted({file for file, _ in passed})
        print(f"{name:8s} {len(files)} files, {len(passed)} functions")
        if options.list:
            for file in files:
                print(f"  {file:32s} {sum(one == file for one, _ in passed)}")


if __name__ == "__main__":
    main()
