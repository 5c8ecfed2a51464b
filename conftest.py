"""What every test shares: one thread each, chance of its own, and a last word on what could not be tested here.

What needs a program or a package that is missing is skipped: a file that cannot be imported by itself, a test with a
reason that begins with "not installed:". The run names all of it at its end, with how to get it, and fails where
`CI=true`: there, nothing may be missing.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No test is about time: beside other work everything may be slow.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The tests run in as many processes as there are cores; threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Java compiles in its quickest way: Spark's sessions here end long before better machine code would pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Kernels of a GPU: to import them takes triton, and there are no examples in them.
collect_ignore = ["lab/hybridp_lab/training/mlp_fused.py"]

# What `make quick` runs, by measurement: less than a minute on two cores. Every other file is slow as a whole; within
# these, a test may be marked slow by itself.
QUICK = ("tests/public", "tests/device", "tests/contract", "tests/blend", "tests/curator", "tests/release/test_mean.py",
         "tests/boundaries", "tests/test_randomness.py")  # fmt: skip
SLOW = ("tests/contract/test_additive.py", "tests/contract/test_contexts.py", "tests/contract/test_oracles.py",
        "tests/contract/test_other_libraries.py",
        "tests/device/test_vector.py", "tests/blend/test_mean.py", "tests/blend/test_tally.py",
        "tests/blend/test_vector.py", "tests/blend/test_personal.py", "tests/blend/test_relaxed.py",
        "tests/blend/test_shares.py", "tests/blend/test_groups.py",
        "tests/blend/test_heavy.py", "tests/blend/test_graph.py", "tests/contract/test_guarantee.py",
        "tests/curator/test_mean.py")  # fmt: skip
ROOT = Path(__file__).parent
_found = spec_from_file_location("tests.chance", ROOT / "tests" / "chance.py")  # some packages install a "tests" too
assert _found is not None
assert _found.loader is not None
sys.modules[_found.name] = chance = module_from_spec(_found)
_found.loader.exec_module(chance)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server of this process's own: one for all tests that need any."""
    pytest.importorskip("psycopg")
    found = spec_from_file_location("throwaway", ROOT / "tools" / "throwaway.py")
    assert found is not None
    assert found.loader is not None
    throwaway = module_from_spec(found)
    found.loader.exec_module(throwaway)
    if throwaway.server_binary() is None:
        pytest.skip("not installed: PostgreSQL (apt-get install postgresql)")
    with throwaway.postgres(durable=False) as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_server: str) -> str:
    """The URL of an empty place on that server."""
    from sqlalchemy import create_engine, text

    name = f"t{secrets.token_hex(6)}"
    admin = create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with admin.connect() as db:
        db.execute(text(f"CREATE SCHEMA {name}"))
    admin.dispose()
    return f"{postgres_server}&options=-csearch_path%3D{name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test plays the same words at every run, whatever ran before it."""
    with chance.of(None if item.get_closest_marker("system_randomness") else item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    """What several tests share plays words of its own, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with chance.of(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Thousands of tests and what they import stay to the end: nobody looks for garbage among them, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # some packages complain of what is left at the end
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@cache
def _slow(path: Path) -> bool:
    place = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return bool(place) and (f"{place}/".startswith(_folders(SLOW)) or not f"{place}/".startswith(_folders(QUICK)))


@cache
def _folders(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}/" for name in names)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Slow files are not even imported for `-m "not slow"`."""
    quick = config.option.markexpr == "not slow" and collection_path.is_file()
    return True if quick and _slow(collection_path) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is run by one process, which sets up its fixtures once; all files that need Spark by one, which starts it.

    Files come in the order of `pytest_collection_modifyitems`: the longest work first, so that both end together.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "tests/engines" if nodeid.startswith("tests/engines/") else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)


@cache
def _turn(path: Path) -> int:
    """What takes longest first, examples in docstrings (hundreds of short files) last."""
    places = ("tests/engines", "tests/test_site.py", "tests/test_docs.py", "lab/tests", "tests")
    return next((turn for turn, place in enumerate(places) if path.is_relative_to(ROOT / place)), len(places))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path))
    for item in items:
        if _slow(item.path):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A file that imports a package of an extra which is not installed is skipped, and named at the end."""
    report = yield
    error = report.call.excinfo.value if report.call.excinfo else None
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if report.failed and package not in ("", "hybridp", "tests"):
        for name, module in list(sys.modules.items()):  # half of it may be there
            if getattr(module, "__file__", None) == str(collector.path):
                del sys.modules[name]
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: could not import '{package}'")
    return report


def _not_tested(config: pytest.Config) -> Counter[str]:
    """What was missing, and how many tests, or whole files, were skipped for it."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [] if reporter is None else reporter.stats.get("skipped", [])
    reasons = {(report.nodeid, report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    found: Counter[str] = Counter()
    for _, reason in reasons:
        missing = re.match(r"Skipped: (?:not installed: (.*)|could not import ('[\w.]+'))", reason, re.DOTALL)
        if missing:
            found[missing[1] or f"the Python package {missing[2]} (pip install -e '.[dev]')"] += 1
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK and _not_tested(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    missing = _not_tested(config)
    if missing:
        failed = os.environ.get("CI") == "true"
        terminalreporter.section("FAILED: CI=true, and not everything was tested" if failed else "not tested here")
        for what, count in sorted(missing.items()):
            terminalreporter.line(f"{count:5} skipped without {what}", red=failed, yellow=not failed)
