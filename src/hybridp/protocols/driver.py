"""One question asked of a table, whatever the question: charge, read, draw, publish, keep.

1. The ledger is charged for trusted people before any row is read. Where the groups' sizes, which are public, decide
   what is spent, they are counted first, and nothing else is read.
2. The task's conversation is held with the people of the table (`hybridp.protocols.rows`). Reports are charged when
   they are read, once for each set of them, before any noise is drawn.
3. The release states the answer and the receipt, and is kept in the ledger before anybody can see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hybridp.curator import groups as grouped
from hybridp.curator.sources import CHOICES, NUMBERS, TableLike, must_be_public, must_read_again
from hybridp.errors import must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.mixed import read_batches, read_level_batches
from hybridp.protocols.paying import kept, on_reports, paid_rows
from hybridp.protocols.rows import TablePeople
from hybridp.protocols.steered import Draft
from hybridp.public.groups import Grouping
from hybridp.public.rounds import Crowd, drive
from hybridp.public.trust import drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.answers import as_count as counted_as
from hybridp.release.receipt import assuming, noted, plain, values_rule
from hybridp.release.release import Release
from hybridp.tasks.groups import ask_groups
from hybridp.tasks.protections import Batches, LevelBatches

__all__ = ["release"]


def release(
    path: TableLike,
    study: Any,
    columns: Any,
    by: Grouping | None = None,
    *,
    epsilon: str | None = None,
    table: str | None = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
    purpose: str | None = None,
    collection: str | None = None,
    tally: Any = None,
    mixed: Sequence[TableLike] = (),
    phases: Sequence[float] = (),
    invite_out: Path | None = None,
    assume_mechanism: bool = False,
    as_count: bool = False,
    rng: Randomness | None = None,
) -> Release:
    """Release the answer to a question from a table of trusted values and local reports.

    `path` is a file, a URL, a `Source` or a table that Python holds (`hybridp.Source` lists the kinds), and
    `columns.trust` a column that holds `trusted` or `local`, or a `TrustRule` on other words. With `by` the answer is
    told group by group; where the study is one of people's own epsilons, the column `epsilon` holds them.

    Trusted people: the study's guarantee against whoever sees the release, under replacement of one person's data, one
    record a person; of a public group, who is in which stays what it is, as the choice of trust does. Local people: the
    guarantee of their own report, against everyone. With `simulate_local` the local rows are raw and are randomised
    here: a trial, and marked as such. The local reports are charged once, however often these very ones are used;
    `collection` may name the set, and is refused for another one. A `tally` stands in for the local rows: the table
    then holds trusted people only. Reports name their mechanism and column, which must be this study's;
    `assume_mechanism` takes those that name none, and says so on the receipt. `mixed` lists the batches that a mixer
    handed on, each a table of reports, of a study with `mixing`. `phases` are the shares of local people whom a trial
    asks one after another, each within the windows that are known by then; with `invite_out` an invitation for local
    people who are asked later is written to that file.
    """
    rng = secure() if rng is None else rng
    raw = simulate_local or drawn_trust(columns.trust)
    task = study.prepared(columns)
    named = "must name the column of everybody's own epsilon" if task.personal else "must be left out"
    must((epsilon is not None) == task.personal, "epsilon", f"{named} with a {type(study).__name__}", epsilon)
    if by is not None:
        task = task.prepared_for(by, columns)
        must_be_public(path, "by", by.column)
    must(not as_count or len(task.options) == 2, "as_count", "must go with two options", len(task.options))
    if epsilon is not None:
        must_be_public(path, "epsilon-column", epsilon)
    must_read_again(path, 2 if by is not None or (raw and task.reads_again) else 1)
    purpose, digest = task.purpose(columns.names, by) if purpose is None else purpose, None
    text = task.named(columns.names).text
    if tally is not None:
        must(not raw, "simulate_local", "must not join a tally", raw)
        # The tally's digest is that of local reports: batches charged under it would be free from then on.
        must(not mixed, "mixed", "must go without a tally", f"{len(mixed)} batches beside one")
        task.check_tally(tally, columns.names)
        collection = tally.origin.stands_in(text, collection)
        digest = tally.origin.digest(tally.to_dict())

    def asked() -> tuple[list[Charge], list[Charge]]:
        charges = [c for c in task.charges(purpose, collection) if mixed or not c.people.startswith("shuffled")]
        return on_reports(charges, trial=raw, digest=digest)

    first, own = asked()
    draft = None if invite_out is None else Draft.checked(invite_out)
    steered = bool(phases) or draft is not None
    later = draft is not None and tally is None  # rows are opened to see whether they hold reports
    if later:
        first, own = [charge for charge in first if charge.people == "trusted"], []
    if phases:
        task.check_phases(phases, trial=raw)
    if steered:
        must(bool(task.at), "at", "must be given where people are asked around quantiles", "nothing")
    if mixed:
        task.check_mixed()
    batches: Batches[Any] | LevelBatches
    if epsilon is not None:
        batches = read_level_batches(mixed, columns, epsilon, task.bounds, assume=assume_mechanism)
    else:
        batches = read_batches(mixed, task.mixed_invite, columns, task.mixing, assume=assume_mechanism)
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    opened |= {"reads": columns.reads, "missing": columns.absent, "raw": raw, "undecided": task.undecided or later}
    unasked = False
    with paid_rows(path, first, own, ledger, trial=rng.simulated or raw, **opened) as (rows, entries, sizes):
        if sizes is not None:
            local = sizes.local if tally is None else tally.people
            task = task.decided(sizes.trusted, local, batches.found[0])
            if later and columns.report not in rows.columns:
                task, unasked = task.trusted_only(), True
            first, own = asked()
            entries.charge(first)

        def charge(group: str, named: str | None) -> None:
            entries.charge([charge for charge in own if charge.people.startswith(group)], digest=named)

        def made() -> dict[str, Any]:
            return {"entries": tuple(entries), "simulated_local": people.simulated and not unasked, "rng": rng}

        with ExitStack() as stack:
            people = TablePeople(rows, columns, rng, raw or unasked, assume_mechanism, charge, tally, batches,
                                 phases, epsilon, stack=stack)  # fmt: skip
            crowd = Crowd(columns.names, lambda middle: values_rule(columns.counts_as(middle)), made, steered)
            if by is None:
                found = drive(task.ask(crowd), people)
            else:
                ways, absent = (CHOICES, task.absent) if task.options else (NUMBERS, columns.missing)
                people.rows = stack.enter_context(grouped.grouped(rows, by.column, columns, ways, absent))
                found = ask_groups(task, by, people, crowd)
        found = counted_as(found) if as_count else found
        found = noted(assuming(found, text if people.assumed else None, batches.assumed), rows.notes)
        stated = columns if epsilon is None else {**plain(columns), "epsilon": epsilon}
        if draft is not None and people.asked is not None:
            heard = people.asked.known
            sent = (digest or people.digest) if heard.reports is not None else None
            how: dict[str, Any] = {"notes": rows.notes, "first_reports": sent, "ledger": ledger}
            draft.make(task, columns.value, heard, found, tuple(entries), **how)
        found = kept(found, ledger, entries, purpose=purpose, study=task.stated(by), columns=stated)
    if draft is not None:
        draft.write()
    return found


release_distribution = release_groups = release_joint = release_mean = release_shares = release
