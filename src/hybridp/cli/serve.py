"""`hybridp serve`: the collection service."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import note
from hybridp.errors import InvalidInput

__all__ = ["needs_service", "serve", "store_options"]


def store_options(function: Any) -> Any:
    """Where the studies are, and the key that opens what is sealed in them."""
    for option in (
        click.option("--key-file", type=click.Path(dir_okay=False, path_type=Path), help="Keep it off the database's disk [hybridp.key]."),  # noqa: E501
        click.option("--database", help="A sqlite or postgresql URL [sqlite:///hybridp.db]."),
    ):  # fmt: skip
        function = option(function)
    return function


def needs_service() -> None:
    """Say which extra is missing instead of a traceback."""
    import importlib.util

    for name in ("fastapi", "uvicorn", "sqlalchemy", "cryptography", "msgspec"):
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"`hybridp[service]` must be installed for this command. Got no {name}.")


@click.command("serve")
@store_options
@click.option("--host", default="127.0.0.1", show_default=True, help="TLS is the reverse proxy's part: stay local.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free port.")
@click.option("--base-url", help="How participants reach the service; links are made from it.")
@click.option("--rate", type=float, default=100.0, show_default=True, help="Reports a second and address; 0: no limit.")
@click.option(
    "--trust-proxy", default="127.0.0.1", show_default=True, help="Whose word on the client's address counts."
)
def serve(
    database: str | None,
    key_file: Path | None,
    host: str,
    port: int,
    base_url: str | None,
    rate: float,
    trust_proxy: str,
) -> None:
    """Run the service until it is stopped. The first start makes the database, the key file and an analyst's key."""
    needs_service()
    import uvicorn

    from hybridp.service.app import build_app, listen, settle
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings
    from hybridp.service.studies import add_analyst, has_analysts

    with listen(host, port) as (listening, address):
        settings = Settings.from_environment(database, key_file, base_url or address, Limits(rate=rate))
        service = Service(settings)
        if not has_analysts(service):
            if sys.stderr.isatty():
                note(f"An analyst's key, shown only now: {add_analyst(service, 'first analyst')}")
            else:  # what is no terminal may be a log, and a key does not belong there
                note("Nobody can log in yet: make an analyst's key with `hybridp study analyst NAME`.")
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn stops in good order, then passes the signal on
            note(f"Serving on {settings.base_url}; stop with Ctrl-C.")
            app = build_app(settings, service=service)
            settle()
            config = uvicorn.Config(
                app,
                access_log=False,  # it would write addresses, and tokens in links
                log_level="warning",
                server_header=False,
                forwarded_allow_ips=trust_proxy,
                timeout_graceful_shutdown=10,
            )
            uvicorn.Server(config).run(sockets=[listening])
