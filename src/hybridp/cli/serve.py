"""`hybridp serve`: the collection service; and `hybridp mix`, the mixer of somebody who does not collude with it."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import urlsplit

import click

from hybridp.cli.app import FILE_PATH, note, stack, table
from hybridp.cli.options import telling
from hybridp.device.client import UploadRefused, fetch_task
from hybridp.errors import InvalidInput, must
from hybridp.public.mixing import Signer, from_text, text

with contextlib.suppress(ImportError):  # what is missing is said before it is used (`needs_service`)
    from hybridp.mixer import Route, Store, build_app, load_or_make
    from hybridp.service.schema import connect
    from hybridp.service.settings import Limits, Settings, stated_address

__all__ = ["close", "join", "key", "mix_serve", "needs_service", "say_new_key", "serve", "status", "store_options"]


store_options = stack(
    click.option("--database", help="A sqlite or postgresql URL [sqlite:///hybridp.db]."),
    click.option("--key-file", type=FILE_PATH, help="Keep it off the database's disk [hybridp.key]."),
)
"""Where the studies are, and the key that opens what is sealed in them."""


def _listen_options(port: int, rate: str = "Reports a second and address; 0: no limit.") -> Callable[[Any], Any]:
    """Where a server listens, and whom it lets in."""
    local, ports = "TLS is the reverse proxy's part: stay local.", click.IntRange(0, 65535)
    return stack(
        click.option("--host", default="127.0.0.1", show_default=True, help=local),
        click.option("--port", type=ports, default=port, show_default=True, help="0: any free port."),
        click.option("--rate", type=float, default=100.0, show_default=True, help=rate),
        click.option("--trust-proxy", default="127.0.0.1", show_default=True,
                     help="Whose word on the client's address counts."),
    )  # fmt: skip


def needs_service() -> None:
    """Say which extra is missing instead of a traceback."""
    for name in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "cryptography", "msgspec"):
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"`hybridp[service]` must be installed for this command. Got no {name}.")


def say_new_key(file: Path) -> None:
    """Of a key that was made just now: nothing that it seals can be read without it."""
    note(f"Made a new key in {file}: back it up, apart from the database.")


def _loopback(host: str) -> bool:
    """Whether only this machine can connect.

    >>> _loopback("127.0.0.1"), _loopback("localhost"), _loopback("0.0.0.0"), _loopback("::")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _run(app: Any, trust_proxy: str, listening: socket) -> None:
    """Run a server that keeps nothing of who came, and takes a client's address from this proxy alone."""
    import uvicorn

    config = uvicorn.Config(
        app,
        access_log=False,  # it would write addresses, and tokens in links
        log_level="warning",
        server_header=False,
        forwarded_allow_ips=trust_proxy,
        timeout_graceful_shutdown=10,
    )
    uvicorn.Server(config).run(sockets=[listening])


@click.command("serve")
@click.argument("study_file", metavar="[STUDY.toml]", required=False, type=FILE_PATH)
@store_options
@click.option("--base-url", help="How participants reach the service; links are made from it.")
@_listen_options(8000, "Reports a second and address, and half as many pages; 0: no limit.")
def serve(
    study_file: Path | None, database: str | None, key_file: Path | None, host: str, port: int, base_url: str | None,
    rate: float, trust_proxy: str,
) -> None:  # fmt: skip
    """Run the service until it is stopped. The first start makes the database, the key file and an analyst's key.

    With a study file the service holds that study, made at the first start; its link is printed.
    """
    needs_service()
    from hybridp.service.app import build_app, listen, settle
    from hybridp.service.core import Service
    from hybridp.service.plans import parse_plan
    from hybridp.service.studies import add_analyst, has_analysts, remember_address, the_study

    study = None
    if study_file is not None:
        from hybridp.cli.releasing import read_study

        study = read_study(study_file)
        parse_plan(study)  # refused before anything is made
    with listen(host, port) as (listening, address):
        known = base_url or stated_address()
        settings = Settings.from_environment(database, key_file, known or address, Limits(rate=rate))
        service = Service(settings)
        made = None if study is None else the_study(service, study)
        remember_address(service)
        if not _loopback(host) and not settings.secure_cookies:
            note(
                f"WARNING: --host {host} can be reached by others, and without TLS: whoever is on the way reads "
                "trusted answers and can change the script that randomises. Stay on 127.0.0.1 behind a proxy with TLS, "
                "and give its https: address as --base-url."
            )
        if not has_analysts(service):
            if sys.stderr.isatty():
                note(f"An analyst's key, shown only now: {add_analyst(service, 'first analyst')}")
            else:  # what is no terminal may be a log, and a key does not belong there
                note("Nobody can log in yet: make an analyst's key with `hybridp study analyst NAME`.")
        if made is not None:
            note(f"{made['title']}: {made['link']}")
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn stops in good order, then passes the signal on
            app = build_app(settings, service=service)
            settle()
            note(f"Serving on {address}; stop with Ctrl-C.")
            if known:
                note(f"Links begin with {settings.base_url}.")
            _run(app, trust_proxy, listening)


# --- the mixer --------------------------------------------------------------------------------------------------------


_where = stack(
    click.option("--database", default="sqlite:///mixer.db", show_default=True, help="A sqlite or postgresql URL."),
    click.option("--key-file", type=FILE_PATH, default=Path("mixer.key"), show_default=True, help="The mixer's own."),
)


def _store(database: str) -> Store:
    needs_service()
    return Store(connect(database))


def _signer(database: str, key_file: Path) -> Signer:
    needs_service()
    new = not key_file.exists()
    result = load_or_make(key_file, lambda: not _store(database).routes())
    if new:
        say_new_key(key_file)
    return result


@telling("key", _where)
def key(database: str, key_file: Path) -> Any:
    """The mixer's public key, for the study's plan; the key file is made unless a study has joined."""
    result = text(_signer(database, key_file).public)
    return {"key": result}, result


@telling("join", click.argument("url"), _where)
def join(url: str, database: str, key_file: Path) -> Any:
    """Mix for a study from now on. URL is the link that its participants get, or the study's task.

    The study's own statement says how many reports go on at once, at least; it must name this mixer's key.
    """
    store = _store(database)
    route = _read(url, text(_signer(database, key_file).public))
    store.join(route)
    said = f"Mixing for {route.study}: at least {route.batch:,} reports at once, to {route.collector}."
    return {"study": route.study, "batch": route.batch}, said


def _read(url: str, own: str) -> Route:
    parts = urlsplit(url)
    kind, _, study = parts.path.strip("/").rpartition("/")
    if parts.scheme not in ("http", "https") or not study or kind.rpartition("/")[2] not in ("s", "tasks"):
        raise InvalidInput("`url` must be a study's link, such as https://study.example/s/ID. Got something else.")
    base = f"{parts.scheme}://{parts.netloc}/{kind.rpartition('/')[0]}".rstrip("/")
    try:
        stated = fetch_task(base, study)["mixer"]
        must(stated["key"] == own, "url", "must be of a study that names this mixer's key", "one that names another")
        ticket_key, report_key = (from_text(stated[name], 32, name) for name in ("ticket_key", "report_key"))
        batch, size, closes = int(stated["batch"]), int(stated["bytes"]), stated.get("closes")
        origin = f"{parts.scheme}://{parts.netloc}"
        until = None if closes is None else int(closes)
        return Route(study, base, origin, batch, size, ticket_key, report_key, until)
    except (KeyError, TypeError, ValueError):
        problem = "of a study that is mixed. Got one that says nothing of a mixer"
    except UploadRefused as error:
        problem = f"of a study that its collector knows. Got an answer with status {error.status}"
    except OSError as error:
        problem = f"of a collector that answers. Got none ({type(error).__name__})"
    raise InvalidInput(f"`url` must be {problem}.")


@telling("close", click.argument("study"), _where)
def close(study: str, database: str, key_file: Path) -> Any:
    """Take no more reports of a study; what is held goes on as its last batch, by the server that runs."""
    store = _store(database)
    store.close(study)
    return {"study": study, "held": store.waiting(study)}, f"Closed {study}."


@telling("status", _where)
def status(database: str, key_file: Path) -> Any:
    """The studies that this mixer mixes for, and what waits to be sent."""
    store = _store(database)
    waiting = [name for _, name in store.to_send()]
    result = [
        {"study": r.study, "state": r.state, "batch": r.batch, "held": store.waiting(r.study),
         "to_send": waiting.count(r.study)}
        for r in store.routes()
    ]  # fmt: skip
    rows = [[str(value) for value in one.values()] for one in result]
    names = ["study", "state", "batch", "held", "batches to send"]
    none = "No study yet: `hybridp mix join` takes one."
    return {"studies": result}, (lambda: table("Studies", names, rows)) if result else none


@click.command("serve")
@_where
@_listen_options(8001)
def mix_serve(database: str, key_file: Path, host: str, port: int, rate: float, trust_proxy: str) -> None:
    """Run the mixer until it is stopped.

    An address that sends more than --rate reports a second is told to wait, as the collector tells it: whoever floods
    the mixer cannot keep others out. A proxy on another machine is named by --trust-proxy: all that it hands on
    would be one address. Addresses are neither stored nor logged.
    """
    store, limits = _store(database), Limits(rate=rate)
    from hybridp.service.app import listen
    from hybridp.service.problems import Gate

    app = build_app(store, _signer(database, key_file), Gate(limits.rate, limits.burst).wait)
    with listen(host, port) as (listening, address), contextlib.suppress(KeyboardInterrupt):
        note(f"Mixing on {address}; stop with Ctrl-C.")
        _run(app, trust_proxy, listening)
