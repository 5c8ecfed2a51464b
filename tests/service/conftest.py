"""A service on a store: what the store itself, the ledger and the interface promise is tried on both kinds of it."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.service import live

from hybridp.service import studies
from hybridp.service.app import build_app
from hybridp.service.core import Service
from hybridp.service.settings import Limits, Settings
from tests import warm

from .declared import study_of

ON_BOTH = (  # files and tests
    "test_deletion", "test_kill", "test_migrations", "test_store", "test_thief",
    "test_a_study_from_plan_to_release", "test_one_contribution_for_each_invitation",
    "test_bad_requests_never_break_the_service", "test_what_the_task_states_is_what_all_releases_spend",
    "test_what_is_deleted_while_a_release_reads_it_stays_deleted", "test_a_connection_that_is_lost_in_the_commit",
    "test_a_ticket_uses_up_an_invitation_and_is_the_same_again", "test_a_visit_to_an_open_study_has_one_way",
    "test_a_batch_counts_once_and_what_came_before_is_left_out",
    "test_a_mixer_cannot_fill_a_batch_with_more_reports_than_people_have_tickets",
)  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        names = {metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__}
        both = not names.isdisjoint(ON_BOTH)
        metafunc.parametrize("database", ["sqlite", "postgres"] if both else ["sqlite"], indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of this kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.db'}"
    found: str = request.getfixturevalue("postgres_schema")
    return found


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    limits = Limits(rate=0, guess_rate=0)
    return Settings.from_environment(database, tmp_path / "hybridp.key", "http://testserver", limits)


@pytest.fixture
def service(settings: Settings) -> Iterator[Service]:
    running = Service(settings)
    yield running
    running.close()


@pytest.fixture
def app(settings: Settings, service: Service) -> FastAPI:
    return build_app(settings, service=service)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app) as running:
        yield running


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    """The pages of a service of its own, on SQLite; what goes wrong inside is answered as people would see it."""
    where = Settings.from_environment(f"sqlite:///{tmp_path / 's.db'}", tmp_path / "k", limits=Limits(rate=0))
    how: dict[str, Any] = {"follow_redirects": False, "raise_server_exceptions": False}
    with TestClient(build_app(where), base_url="http://127.0.0.1:8000", **how) as running:
        yield running


@pytest.fixture
def analyst(service: Service) -> dict[str, str]:
    """The headers of a signed-in analyst."""
    return {"Authorization": f"Bearer {studies.add_analyst(service, 'ada')}"}


MEAN: dict[str, Any] = {
    "kind": "mean",
    "title": "Commute",
    "bounds": {"lower": 0.0, "upper": 100.0},
    "epsilon": 1.0,
    "min_batch": 4,
    "time_precision": 60,
}


@pytest.fixture
def mean_plan() -> Callable[..., dict[str, Any]]:
    return lambda **more: study_of(MEAN | more)


@pytest.fixture
def report() -> Callable[..., dict[str, Any]]:
    """One report as a device would send it; a trusted value unless something else is asked for."""

    def make(value: float = 40.0, *, group: str = "trusted", **more: Any) -> dict[str, Any]:
        payload: dict[str, Any] = {"answers": {"answer": value}}
        if group == "local":
            payload = {"reports": {"answer": {"threshold": 1 << 31, "above": True}}}
        found = {
            "id": studies.new_report_id(),
            "time": studies.rounded_now({"time_precision": 60}),
            "group": group,
            "payload": payload,
        }
        return found | more

    return make


# --- a server in a process of its own ---------------------------------------------------------------------------------


@dataclass
class Running:
    """`hybridp serve`, started as anyone would start it."""

    url: str
    process: warm.Process
    log: Path
    http: httpx2.Client

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


Start = Callable[..., Running]


@pytest.fixture
def start_server(database: str, tmp_path: Path) -> Iterator[Start]:
    """Starts `hybridp serve` on the test's database and key file, as often as asked; `before` is run in its process."""
    with contextlib.ExitStack() as started:
        yield functools.partial(_started, database, tmp_path, started)


def _started(database: str, folder: Path, ends: contextlib.ExitStack, before: str = "", **environment: str) -> Running:
    code = f"{before}\nfrom hybridp.cli.serve import serve\nserve()"
    where = ["--database", database, "--key-file", str(folder / "hybridp.key"), "--port", "0", "--rate", "0"]
    log = folder / f"server-{secrets.token_hex(4)}.log"
    with log.open("wb") as file:
        process = warm.Process(code, *where, stderr=file, stdout=file, env=warm.unbuffered(**environment))

    @ends.callback
    def end() -> None:
        if process.poll() is None:
            process.terminate()
            process.wait()

    url = live.address(process, log)
    return Running(url, process, log, ends.enter_context(httpx2.Client(base_url=url, timeout=live.PATIENCE)))


# --- a server for all tests, and a browser for those of a file --------------------------------------------------------


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with live.serving(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="not installed: Playwright (the extra `test`)")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=live.CHROMIUM, args=live.options())
        yield browser
        browser.close()


@pytest.fixture
def traffic() -> Any:
    return live.Traffic()


@pytest.fixture(scope="module")
def pages(chromium: Any) -> dict[bool, Any]:
    """A page that runs scripts and one that does not: to open another costs the browser ten times a new address."""
    found = {}
    for scripts in (True, False):
        context = chromium.new_context(java_script_enabled=scripts)
        context.set_default_timeout(live.PATIENCE * 1000)
        found[scripts] = context.new_page()
    return found


@pytest.fixture
def page(pages: dict[bool, Any], traffic: Any) -> Iterator[Any]:
    with traffic.along(pages[True]) as page:
        yield page


@pytest.fixture
def plain_page(pages: dict[bool, Any], traffic: Any) -> Iterator[Any]:
    """A page without scripts."""
    with traffic.along(pages[False]) as page:
        yield page
