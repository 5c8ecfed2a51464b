"""`hybridp mix`: the mixer, run by somebody who does not collude with the collector."""

from __future__ import annotations

import contextlib
import json
import math
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from hybridp.cli.common import note, stack, table, telling
from hybridp.cli.serve import listen_options, needs_service, quiet
from hybridp.errors import InvalidInput, must

if TYPE_CHECKING:
    from hybridp.mixer.store import Route, Store
    from hybridp.public.mixing import Signer

__all__ = ["close", "join", "key", "serve", "status"]


_where = stack(
    click.option("--database", default="sqlite:///mixer.db", show_default=True, help="A sqlite or postgresql URL."),
    click.option("--key-file", type=click.Path(dir_okay=False, path_type=Path), default=Path("mixer.key"),
                 show_default=True, help="The mixer's own."),
)  # fmt: skip


def _store(database: str) -> Store:
    needs_service()
    from hybridp.mixer.store import Store
    from hybridp.service.schema import connect

    return Store(connect(database))


def _signer(database: str, key_file: Path) -> Signer:
    needs_service()
    from hybridp.mixer.app import load_or_make

    new = not key_file.exists()
    found = load_or_make(key_file, lambda: not _store(database).routes())
    if new:
        note(f"Made a new key in {key_file}: back it up, apart from the database.")
    return found


@telling("key", _where)
def key(database: str, key_file: Path) -> Any:
    """The mixer's public key, for the study's plan; the key file is made unless a study has joined."""
    from hybridp.public.mixing import text

    found = text(_signer(database, key_file).public)
    return {"key": found}, found


@telling("join", click.argument("url"), _where)
def join(url: str, database: str, key_file: Path) -> Any:
    """Mix for a study from now on. URL is the link that its participants get, or the study's task.

    The study's own statement says how many reports go on at once, at least; it must name this mixer's key.
    """
    store = _store(database)
    from hybridp.public.mixing import text

    route = _read(url, text(_signer(database, key_file).public))
    store.join(route)
    said = f"Mixing for {route.study}: at least {route.batch:,} reports at once, to {route.collector}."
    return {"study": route.study, "batch": route.batch}, said


def _read(url: str, own: str) -> Route:
    from hybridp.mixer.store import Route
    from hybridp.public.mixing import from_text

    parts = urlsplit(url)
    kind, _, study = parts.path.strip("/").rpartition("/")
    if parts.scheme not in ("http", "https") or not study or kind.rpartition("/")[2] not in ("s", "tasks"):
        raise InvalidInput("`url` must be a study's link, such as https://study.example/s/ID. Got something else.")
    base = f"{parts.scheme}://{parts.netloc}/{kind.rpartition('/')[0]}".rstrip("/")
    try:
        with urllib.request.urlopen(f"{base}/tasks/{study}", timeout=30) as answer:
            stated = json.load(answer)["mixer"]
        if stated["key"] != own:
            raise InvalidInput("`url` must be of a study that names this mixer's key. Got one that names another.")
        ticket_key, report_key = (from_text(stated[name], 32, name) for name in ("ticket_key", "report_key"))
        batch, size, closes = int(stated["batch"]), int(stated["bytes"]), stated.get("closes")
        origin = f"{parts.scheme}://{parts.netloc}"
        until = None if closes is None else int(closes)
        return Route(study, base, origin, batch, size, ticket_key, report_key, until)
    except (KeyError, TypeError, ValueError):
        problem = "of a study that is mixed. Got one that says nothing of a mixer"
    except urllib.error.HTTPError as error:
        problem = f"of a study that its collector knows. Got an answer with status {error.code}"
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
    found = [
        {"study": r.study, "state": r.state, "batch": r.batch, "held": store.waiting(r.study),
         "to_send": waiting.count(r.study)}
        for r in store.routes()
    ]  # fmt: skip
    rows = [[str(value) for value in one.values()] for one in found]
    names = ["study", "state", "batch", "held", "batches to send"]
    none = "No study yet: `hybridp mix join` takes one."
    return {"studies": found}, (lambda: table("Studies", names, rows)) if found else none


@click.command("serve")
@_where
@listen_options(8001)
def serve(database: str, key_file: Path, host: str, port: int, rate: float, trust_proxy: str) -> None:
    """Run the mixer until it is stopped.

    An address that sends more than --rate reports a second is told to wait, as the collector tells it: whoever floods
    the mixer cannot keep others out. A proxy on another machine is named by --trust-proxy: all that it hands on
    would be one address. Addresses are neither stored nor logged.
    """
    must(math.isfinite(rate) and rate >= 0, "rate", "must be zero or positive", rate)
    store = _store(database)
    import uvicorn

    from hybridp.mixer.app import build_app
    from hybridp.service.app import listen
    from hybridp.service.problems import Gate
    from hybridp.service.settings import Limits

    app = build_app(store, _signer(database, key_file), Gate(rate, Limits().burst).wait)
    with listen(host, port) as (listening, address), contextlib.suppress(KeyboardInterrupt):
        note(f"Mixing on {address}; stop with Ctrl-C.")
        uvicorn.Server(quiet(app, trust_proxy)).run(sockets=[listening])
