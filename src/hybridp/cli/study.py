"""`hybridp study`: what an analyst does with a study, on the machine where its database is."""

from __future__ import annotations

import functools
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli import app
from hybridp.cli.app import FILE_PATH, NOTHING, count, if_interrupted, note, number, receipt, show_words, table
from hybridp.cli.options import command, some, telling
from hybridp.cli.releasing import Releasing, check_out
from hybridp.cli.serve import needs_service, say_new_key, store_options
from hybridp.errors import HybridpError, InvalidInput, NotShown, must, read_toml
from hybridp.public.envelope import appearing

if TYPE_CHECKING:
    from hybridp.service import studies
    from hybridp.service.core import Service

__all__ = ["analyst", "close", "create", "delete", "export", "invite", "list", "open_phase", "release", "rotate_key"]


def _opened(function: Callable[..., Any]) -> Callable[..., Any]:
    """With options for where the service's database is, which is open while the function runs."""

    @functools.wraps(function)
    def run(database: str | None, key_file: Path | None, **given: Any) -> Any:
        global studies  # loaded when something is done with a study: help needs none of it
        needs_service()
        from hybridp.service import studies
        from hybridp.service.core import Service
        from hybridp.service.settings import Settings, stated_address

        with closing(Service(Settings.from_environment(database, key_file))) as service:
            if service.settings.key_is_new:
                say_new_key(service.settings.key_file)
            # Links are those of the server that was started on this database, unless the environment says otherwise.
            if address := stated_address() or studies.remembered_address(service):
                service.settings = replace(service.settings, base_url=address.rstrip("/"))
            return function(service, **given)

    return store_options(run)


def _command(name: str, *options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    return lambda function: telling(name, *options)(_opened(function))


_STUDY = click.argument("study")
_FILE = click.argument("stated", metavar="STUDY.toml", type=FILE_PATH, callback=lambda _, __, file: read_toml(file))


@_command("create", _FILE)
def create(service: Service, stated: dict[str, Any]) -> Any:
    """A new study as a study file declares it. It never changes afterwards."""
    made = studies.create_study(service, stated)
    return made, f"{made['id']}  {made['title']}\n{made['link']}"


@_command("list")
def list(service: Service) -> Any:
    """All studies, newest first."""
    result = studies.list_studies(service)
    rows = [
        (s["id"], s["title"], s["kind"], s["status"], f"{s['people']['trusted']:,}", f"{s['people']['local']:,}")
        for s in result
    ]
    return {"studies": result}, lambda: table("Studies", ("id", "title", "kind", "status", "trusted", "local"), rows)


@_command("invite", _STUDY, click.argument("people", type=count))
def invite(service: Service, study: str, people: int) -> Any:
    """Single-use links for so many people, one a line. They are shown only now."""
    tokens = studies.invite(service, study, people)
    link = studies.study_summary(service, study)["link"]
    return {"study": study, "tokens": tokens}, "\n".join(f"{link}?t={token}" for token in tokens)


@_command("close", _STUDY)
def close(service: Service, study: str) -> Any:
    """No more reports."""
    result = studies.close_study(service, study)
    trusted, local = (result["people"][name] for name in ("trusted", "local"))
    return result, f"{result['title']}: closed with {trusted:,} trusted, {local:,} local."


@_command("delete", _STUDY, click.option("--yes", is_flag=True, help="Do not ask."))
def delete(service: Service, study: str, yes: bool) -> Any:
    """Delete a study's trusted answers, local reports and invitations, for good.

    The plan, the ledger and what was published stay on record.
    """
    title = next((s["title"] for s in studies.list_studies(service) if s["id"] == study), None)
    if title is None:
        raise studies.no_such_study()
    if not yes:
        if click.get_current_context().params["as_json"]:
            raise InvalidInput("`--yes` must be given together with --json: nobody is asked. Got nothing.")
        click.confirm(f"Delete all answers and reports of “{title}”, for good?", abort=True, err=True)
    result = studies.delete_study(service, study)
    service.sweeper.wait(60)
    return result, f"{result['title']}: deleted. Its plan, ledger and releases stay on record."


@contextmanager
def _stored_or_not(service: Service, study: str, key: str, kind: str, way: str) -> Iterator[str]:
    """Around what charges and stores: whatever stops it, say what is true. SIGTERM is an interrupt like Ctrl-C.

    The charge and the release are one transaction of the writer's thread, which goes on when this one is interrupted:
    only the store can tell whether it was through. It ends when what was deleted is gone from the files too, if nobody
    holds that up. Gives the sentence on the command that shows it again, which ends in this `way`.
    """
    from sqlalchemy.exc import SQLAlchemyError

    again = f"`hybridp study {way}` shows it"
    failures = (SQLAlchemyError, service.engine.dialect.loaded_dbapi.Error)
    unknown = f"whether it was released is not known: {again}, or makes it, and charges it once"
    stored = f"the release is stored: {again}, uncharged"
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    if_interrupted(unknown)
    try:
        yield again
        if not service.sweeper.wait(60):
            note("The values' key is deleted. Their rows are removed when a server runs, or at the next command.")
        if_interrupted(stored)
    except HybridpError:
        if_interrupted(NOTHING)
        raise
    except (KeyboardInterrupt, *failures) as error:
        made = None
        with suppress(HybridpError, *failures):
            made = _is_stored(service, study, key, kind)
        truth = {None: unknown, True: stored, False: NOTHING}[made]
        if_interrupted(truth)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise NotShown(
            f"The database failed ({type(error).__name__}); {truth}.", code=2 if made is False else 4
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_stored(service: Service, study: str, key: str, kind: str) -> bool:
    """Asked of the writer, behind whatever it was told before."""
    from hybridp.service.studies import stored

    number = service.number(study)
    return service.write(lambda db: stored(db, number, key, kind)) is not None


@_command(
    "open-phase", _STUDY,
    click.argument("phase", type=int, default=2),
    click.option("--yes", is_flag=True, help="Make a list of records that will probably be empty, unasked."),
)  # fmt: skip
def open_phase(service: Service, study: str, phase: int, yes: bool) -> Any:
    """Release what the phase before says, and invite local people to answer it in this one: 2, or a later one.

    Heavy hitters, steered numbers and regressions have two phases, alone or beside other questions; steered quantiles
    as many as you like.
    """
    with _stored_or_not(service, study, f"phase {phase}", "discovery", f"open-phase {study} {phase}"):
        result = studies.open_phase(service, study, phase, sure=yes)

    def show() -> None:
        _print_release(result)
        click.echo(result.get("remark") or "Local people are invited to answer what follows from it.")

    return result, show


@command(
    "release", _STUDY,
    click.option("--key", default="release", show_default=True, help="The same key: the same release, uncharged."),
    click.option("--model", type=app.FOLDER_PATH, help="The new folder of a synthetic table."),
    asked=some(Releasing, "out", "full", "as_json"),
)  # fmt: skip
@_opened
def release(service: Service, study: str, key: str, model: Path | None, asked: Releasing) -> None:
    """Charge the ledger and publish, both or neither. With --model the rows of a synthetic table are fitted, free."""
    if model is not None:
        from hybridp.tasks.transcript import must_be_new, write_model

        must_be_new(model)
        table_asked = service.study(study).plan.kind == "table"
        must(table_asked, "model", "must go with a study of a synthetic table", "another kind of question")
    with _stored_or_not(service, study, key, "final", f"release {study} --key {shlex.quote(key)}") as again:
        result = studies.release_study(service, study, key)
    if model is not None:
        write_model(result, model)
        note(f"The synthetic data set is in {model}: `hybridp synth answer` and `sample` use it, for free.")
    asked.present(result, lambda: _print_release(result, full=asked.full), f"{again} again, uncharged")


def _print_release(found: dict[str, Any], *, full: bool = False) -> None:
    from hybridp.release.release import Release

    release, spending = Release.of_dict(found), found["spending"]
    show_words(release)
    left = {}
    for group, spent in spending["groups"].items():
        so_far, total = spent["so_far"]["epsilon"], spent["total"]["epsilon"]
        left[group] = f"{number(total - so_far)} of {number(total)}"
    planned = f"release {spending['release']} of {spending['planned_releases']} planned, in {spending['unit']}"
    receipt(release, full=full, left=left, rest=f"{planned}; the rest: --full and --json")


@click.command("export")
@_STUDY
@click.option("--out", type=FILE_PATH, help="A new file for the local reports.")
@_opened
def export(service: Service, study: str, out: Path | None) -> None:
    """The study with its plan, counts, ledger and releases as JSON; with --out also the local reports, line by line."""
    check_out(out)
    result = studies.study_summary(service, study)
    if out is not None:
        with appearing(out, new=True) as draft, draft.open("wb") as file:
            file.writelines(studies.export(service, study))
        result["reports_file"] = str(out)
    app.emit(result)


@_command(
    "analyst", click.argument("name"),
    click.option("--revoke", is_flag=True, help="All keys of this name stop working at once."),
)  # fmt: skip
def analyst(service: Service, name: str, revoke: bool) -> Any:
    """A new key for the JSON API and the pages, shown only now; or the end of one."""
    if revoke:
        many = studies.revoke_analyst(service, name)
        return {"name": name, "revoked": many}, f"{many} keys of {name} revoked."
    key = studies.add_analyst(service, name)
    return {"name": name, "key": key}, key


@click.command("rotate-key")
@store_options
def rotate_key(database: str | None, key_file: Path | None) -> None:
    """A new sealing key in the key file, and every study's key sealed with it. Restart the servers before and after."""
    needs_service()
    from hybridp.service.core import Service
    from hybridp.service.settings import Settings, save
    from hybridp.service.studies import reseal

    settings = Settings.from_environment(database, key_file)
    rotated = settings.keys.rotated()
    save(settings.key_file, rotated)  # the old key stays in the file until everything is sealed anew
    with closing(Service(replace(settings, keys=rotated))) as service:
        sealed = reseal(service)
    save(settings.key_file, rotated.without_old())
    note(f"{sealed} studies are sealed with the new key; sessions were ended.")
