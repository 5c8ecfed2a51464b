"""`hybridp serve`: the collection service."""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import note, stack
from hybridp.errors import InvalidInput

__all__ = ["listen_options", "needs_service", "quiet", "say_new_key", "serve", "store_options"]


store_options = stack(
    click.option("--database", help="A sqlite or postgresql URL [sqlite:///hybridp.db]."),
    click.option("--key-file", type=click.Path(dir_okay=False, path_type=Path),
                 help="Keep it off the database's disk [hybridp.key]."),
)  # fmt: skip
"""Where the studies are, and the key that opens what is sealed in them."""


def listen_options(port: int, rate: str = "Reports a second and address; 0: no limit.") -> Callable[[Any], Any]:
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
    import importlib.util

    for name in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "cryptography", "msgspec"):
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"`hybridp[service]` must be installed for this command. Got no {name}.")


def say_new_key(settings: Any) -> None:
    """A key that was made just now: nothing that it seals can be read without it."""
    if settings.key_is_new:
        note(f"Made a new key in {settings.key_file}: back it up, apart from the database.")


def _loopback(host: str) -> bool:
    """Whether only this machine can connect.

    >>> _loopback("127.0.0.1"), _loopback("localhost"), _loopback("0.0.0.0"), _loopback("::")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def quiet(app: Any, trust_proxy: str) -> Any:
    """How a server runs that keeps nothing of who came, and takes a client's address from this proxy alone."""
    import uvicorn

    return uvicorn.Config(
        app,
        access_log=False,  # it would write addresses, and tokens in links
        log_level="warning",
        server_header=False,
        forwarded_allow_ips=trust_proxy,
        timeout_graceful_shutdown=10,
    )


@click.command("serve")
@click.argument("study_file", metavar="[STUDY.toml]", required=False, type=click.Path(dir_okay=False, path_type=Path))
@store_options
@click.option("--base-url", help="How participants reach the service; links are made from it.")
@listen_options(8000, "Reports a second and address, and half as many pages; 0: no limit.")
def serve(
    study_file: Path | None, database: str | None, key_file: Path | None, host: str, port: int, base_url: str | None,
    rate: float, trust_proxy: str,
) -> None:  # fmt: skip
    """Run the service until it is stopped. The first start makes the database, the key file and an analyst's key.

    With a study file the service holds that study, made at the first start; its link is printed.
    """
    needs_service()
    study = None
    if study_file is not None:
        from hybridp.cli.verbs import read_study
        from hybridp.service.plans import parse_plan

        study = read_study(study_file)
        parse_plan(study)  # refused before anything is made
    import uvicorn

    from hybridp.service.app import build_app, listen, settle
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings, stated_address
    from hybridp.service.studies import add_analyst, has_analysts, remember_address, the_study

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
            uvicorn.Server(quiet(app, trust_proxy)).run(sockets=[listening])
