"""BLENDER over files: in one go, or in two phases with an invitation that travels to the devices in between."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.blend import heavy as blending
from hybridp.curator import heavy as curating
from hybridp.curator.heavy import RecordColumns
from hybridp.curator.reports import SlotsTold, read_slots
from hybridp.curator.sources import TableLike, must_not_ask, open_rows
from hybridp.device import files as device
from hybridp.errors import InvalidInput, NotShown, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols import heavy as blender
from hybridp.protocols.heavy import HeavyRecord, HeavyStudy, Invitation
from hybridp.protocols.mixed import SlotsAsked, read_batches
from hybridp.protocols.paying import ASKED_BEFORE, kept, must_have_paid, spending
from hybridp.public import envelope
from hybridp.public.anchoring import Anchoring
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import HeadList, counting_noise, discovery
from hybridp.public.messages import OptInCounts, SlotReports, report_text
from hybridp.public.shuffling import Mixing
from hybridp.public.trust import drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.answers import GroupEstimate, Shuffled
from hybridp.release.facts import statistic
from hybridp.release.receipt import Protection, assuming, build_receipt, choice_unprotected, noted, public_choice
from hybridp.release.release import Release
from hybridp.tasks import protections
from hybridp.tasks.protections import Batches, MixedReports

if TYPE_CHECKING:
    from hybridp.blend.tally import SlotTally

__all__ = [
    "NO_BATCHES",
    "RecordColumns",
    "combine_reports",
    "heavy_charges",
    "invitation_to",
    "invited_study",
    "is_simulated",
    "publish_heavy",
    "read_invitation",
    "release_heavy_hitters",
    "write_invitation",
    "write_record_reports",
]

_INVITATION = "invitation to report on a head list"
_SIMULATED = " SIMULATED"
_PURPOSE = "heavy hitters"
NO_BATCHES: Batches[SlotReports] = Batches()
"""Batches that are yet to be read."""


def heavy_charges(
    study: HeavyStudy, *, trusted: bool, local: bool, mechanism: str | None = None, digest: str | None = None,
    mixed: Batches[SlotReports] | None = None,
) -> list[Charge]:  # fmt: skip
    """What the ledger is asked for: the trusted people's record in phase one, other people's reports in phase two."""
    found = []
    if trusted:
        found.append(Charge("trusted", study.trusted_promise, "thresholded counts of one record", _PURPOSE))
    if local:
        made = mechanism or "k-rr report on the head list"
        found.append(Charge("local", study.local_guarantee, made, _PURPOSE, digest=digest))
    if mixed is not None and study.mixing is not None:  # whatever mixer and curator do, no more than this
        own = PureDP(study.mixing.epsilon)
        found.append(Charge("shuffled", own, "k-rr report, mixed", _PURPOSE, digest=mixed.digest))
    return found


def _discover(path: TableLike, study: HeavyStudy, columns: RecordColumns, table: str | None, rng: Randomness,
              local: Any, *, raw_local: bool) -> tuple[OptInCounts, int, Any, tuple[str, ...]]:  # fmt: skip
    """Steps 1 to 3 on a table; `local(sample, opt_in)` then does what is to be done with local rows.

    The last of what it gives is to be said of the rows.
    """
    with (
        open_rows(path, table=table, trust=columns.trust, person=columns.person, rng=rng) as rows,
        curating.sample(rows, columns, study.discovery_share, rng=rng) as people,
    ):
        if people.trusted_people == 0:
            raise InvalidInput("`trust` must leave somebody trusted: only they can discover records. Got nobody.")
        if people.local_people and not raw_local:
            raise InvalidInput(
                "`simulate-local` must be given for raw local rows, or the two phases used: --invite-out, then "
                "--invite. Got local rows and neither."
            )
        records, noisy = curating.found_records(people, discovery(study.trusted_promise), rng=rng)
        head = HeadList.of(records, study.depth)
        mechanism = counting_noise(study.trusted_promise)
        counted = curating.slots_among(people, head, mechanism, rng=rng)
        found = blender.opt_in_counts(
            records, noisy, people.discovery_people, counted, head, people.estimation_people, study
        )
        return found, people.local_people, local(people, found), rows.notes


def _report_all(chunks: Iterator[Any], invite: Invitation, rng: Randomness) -> SlotReports | None:
    """Every chunk's reports, drawn on all cores while the next chunk is read; each has randomness of its own."""
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        parts = [pool.submit(blender.report, chunk, invite, rng=own) for chunk in chunks for own in rng.spawn(1)]
        found = [part.result() for part in parts]
    return functools.reduce(operator.add, found) if found else None


def release_heavy_hitters(
    path: TableLike,
    study: HeavyStudy,
    columns: RecordColumns,
    *,
    simulate_local: bool = False,
    table: str | None = None,
    ledger: Ledger | None = None,
    rng: Randomness | None = None,
) -> Release:
    """Release the heavy hitters of a table in one go: local rows are raw and report here, which is a trial.

    Without `simulate_local` a table with local rows is refused: their reports need the invitation first.
    """
    rng = secure() if rng is None else rng
    simulate_local = simulate_local or drawn_trust(columns.trust)

    def report_here(people: Any, found: OptInCounts) -> tuple[Any, Any, SlotReports | None]:
        head, estimates = blender.trim(found, study)
        invite = blender.invitation(head, study)
        told = _report_all(curating.local_slots(people, head), invite, rng)
        return invite, estimates, told

    # No digest: every trial draws new reports, so each is charged.
    charges = heavy_charges(study, trusted=True, local=simulate_local)
    with spending(ledger, charges, trial=rng.simulated or simulate_local, path=path) as entries:
        found, local_people, (invite, estimates, told), notes = _discover(
            path, study, columns, table, rng, report_here, raw_local=simulate_local
        )
        shown = publish_heavy(
            study, found, invite, estimates, told, local_people, tuple(entries), rng.simulated, simulate_local
        )
        shown = noted(shown, notes)
        return kept(shown, ledger, entries, purpose=_PURPOSE, study=study, columns=columns)


def write_invitation(
    path: TableLike,
    study: HeavyStudy,
    columns: RecordColumns,
    out: Path,
    *,
    table: str | None = None,
    ledger: Ledger | None = None,
    rng: Randomness | None = None,
) -> Invitation:
    """Phase one: discover with the trusted people and write what goes to the devices; all of it is private already."""
    rng = secure() if rng is None else rng
    drawn = drawn_trust(columns.trust)
    must(not drawn, "trial-opt-in", "must be for a release in one go: devices do not draw who trusts", "two phases")
    if out.exists():
        raise InvalidInput(f"`invite-out` must name a new file. Got {out}, which exists.")
    if not out.parent.is_dir():
        raise InvalidInput(f"`invite-out` must lie in an existing folder. Got {out}.")
    charges = heavy_charges(study, trusted=True, local=False)
    with spending(ledger, charges, trial=rng.simulated, path=path) as entries:
        found, _, _, notes = _discover(path, study, columns, table, rng, lambda people, opt_in: None, raw_local=True)
        head, _ = blender.trim(found, study)
        own = study.trusted_guarantee
        stated = {"guarantee": _level(study.guarantee), "trusted_guarantee": None if own is None else _level(own)}
        content = {
            "study": {**asdict(study), **stated},
            "slots": [list(slot) for slot in head.slots],
            "opt_in": {
                "slots": [list(slot) for slot in found.head.slots],
                "discovery_people": found.discovery_people,
                "estimation_people": found.estimation_people,
                "discovered": [None if math.isnan(x) else x for x in found.discovered.tolist()],
                "counted": found.counted.tolist(),
            },
            "columns": list(columns.record),
            "ledger_entries": list(entries),
            "notes": list(notes),
        }  # fmt: skip
        document = envelope.sealed(_INVITATION, content, simulated=rng.simulated)
        again = "it was kept nowhere: give a ledger for that"
        if ledger is not None:
            number = ledger.keep(_INVITATION, entries, lambda _: document)
            again = f"`hybridp ledger show {ledger.path} --release {number} --json` prints it again, for free"
    # Outside: a failure while the invitation is written may have shown it, so that its charge stands.
    try:
        envelope.save(out, document)
    except OSError as error:
        raise NotShown(
            f"The invitation was made, but `invite-out` {out} could not be written ({error.strerror}); {again}."
        ) from None
    return _read_invitation(out)[1]


def _level(promise: ApproxDP) -> dict[str, float]:
    return {"epsilon": promise.epsilon, "delta": promise.delta}


@dataclass(frozen=True, slots=True)
class _Record:
    """What an invitation's file says beside the study, the list and the counts."""

    columns: tuple[str, ...]
    entries: tuple[int, ...]
    simulated: bool
    text: str
    mixed_text: str
    notes: tuple[str, ...]


def _read_invitation(file: Path) -> tuple[HeavyStudy, Invitation, OptInCounts, _Record]:
    """The invitation, checked: its list must be the one that follows from its counts."""
    try:
        document = envelope.load(file, _INVITATION)
        stated = dict(document["study"])
        stated["guarantee"], own = ApproxDP(**stated["guarantee"]), stated["trusted_guarantee"]
        stated["trusted_guarantee"] = None if own is None else ApproxDP(**own)
        stated["mixing"] = None if stated["mixing"] is None else Mixing(**stated["mixing"])
        study = HeavyStudy(**stated)
        head = HeadList(study.depth, tuple(tuple(s) for s in document["slots"]))
        found = _opt_in(document["opt_in"], study)
        columns, entries, simulated = document["columns"], document["ledger_entries"], document["simulated"]
        ok = blender.trim(found, study)[0] == head and all(isinstance(e, int) for e in entries)
        notes = tuple(document["notes"])
        ok = ok and len(columns) == study.depth and all(isinstance(c, str) for c in (*columns, *notes))
        if not ok:
            raise ValueError
        invite = blender.invitation(head, study)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation that --invite-out wrote. Got {file}.") from None
    digest = document["digest"].removeprefix("sha256:")[:16]

    def text(g: PureDP, mark: str = "") -> str:
        made = f"k-rr(slots={len(head)},epsilon={g.epsilon!r},delta={g.delta!r},{mark}invite={digest})"
        return report_text(made, tuple(columns))

    mixed = "" if study.mixing is None else text(PureDP(study.mixing.epsilon), "mixed,")
    about = _Record(tuple(columns), tuple(entries), simulated, text(study.local_guarantee), mixed, notes)
    return study, invite, found, about


def invitation_to(study: HeavyStudy, columns: RecordColumns, file: Path) -> None:
    """Refuse an invitation to another study: it could promise less, or ask about other columns."""
    invited, _, _, about = _read_invitation(file)
    wanted = {**asdict(study), "columns": columns.record}
    stated = {**asdict(invited), "columns": about.columns}
    for name, value in wanted.items():
        rule = f"must be an invitation to this question, with the {name.replace('_', ' ')} {_said(value)}"
        must(name == "level" or stated[name] == value, "invite", rule, _said(stated[name]))


def _said(value: Any) -> str:
    return ", ".join(map(str, value.values() if isinstance(value, dict) else value)) if isinstance(
        value, (dict, list, tuple)) else str(value)  # fmt: skip


def invited_study(file: Path) -> HeavyStudy:
    """The study that an invitation belongs to."""
    return _read_invitation(file)[0]


def read_invitation(file: Path, *, mixed: bool = False) -> tuple[int, str]:
    """How many slots an invitation has, and the text that stands beside every answer to it (or `mixed` ones)."""
    _, invite, _, about = _read_invitation(file)
    return len(invite.head), about.mixed_text if mixed else about.text


def is_simulated(file: Path) -> bool:
    """Whether an invitation comes from a trial: its answers are charged to a trial's ledger."""
    return _read_invitation(file)[3].simulated


def _opt_in(stated: dict[str, Any], study: HeavyStudy) -> OptInCounts:
    full = HeadList(study.depth, tuple(tuple(s) for s in stated["slots"]))
    shown = np.array([math.nan if x is None else x for x in stated["discovered"]], dtype=np.float64)
    counted = np.array(stated["counted"], dtype=np.float64)
    people = stated["discovery_people"], stated["estimation_people"]
    ok = all(isinstance(n, int) and n >= 0 for n in people) and sum(people) >= 1
    ok = ok and counted.shape == shown.shape == (len(full),) and bool(np.isfinite(counted).all())
    if not (ok and np.array_equal(np.isfinite(shown), full.is_record)):
        raise ValueError
    promise = study.trusted_promise
    return OptInCounts(full, *people, shown, counted, discovery(promise), counting_noise(promise))


def write_record_reports(
    path: TableLike,
    invite_file: Path,
    columns: RecordColumns,
    out: Path,
    *,
    table: str | None = None,
    mixed: bool = False,
    rng: Randomness | None = None,
) -> int:
    """What the devices do: one report for each local person of a file, in a CSV that holds nothing else.

    Reports are written slot by slot, so that their order tells neither who sent which nor who has several records.
    Beside each report stands the invitation that it answers, so that it cannot be taken for an answer to another one,
    and a random name of this batch: other reports of the same people are another set, also where their counts agree.
    With `mixed` they are of people who trust the mixer that the invitation states: what it would hand on.
    """
    rng = secure() if rng is None else rng
    study, invite, _, about = _read_invitation(invite_file)
    if mixed:
        second = blender.mixed_invitation(invite.head, study)
        must(second is not None, "mixed", "must go with an invitation that states a mixer (--batch)", "one without")
        invite = second or invite
    _same_depth(len(columns.record), invite.head.depth)
    drawn = drawn_trust(columns.trust)
    must(not drawn, "trial-opt-in", "must be for a release: devices do not draw who trusts", "a trial")
    if out.suffix.lower() != ".csv" or not out.parent.is_dir() or out.exists():
        raise InvalidInput(f"`out` must name a new .csv file in an existing folder. Got {out}.")
    return device.write_record_reports(
        path,
        invite.head,
        invite.mechanism,
        out,
        person=columns.person,
        record=columns.record,
        trust=columns.trust,
        record_key=columns.record_key,
        record_id=columns.record_id,
        text=f"{about.mixed_text if mixed else about.text}{_SIMULATED if rng.simulated else ''}",
        table=table,
        rng=rng,
    )


def _same_depth(columns: int, depth: int) -> None:
    must(columns == depth, "record", f"must name as many columns as the invitation, {depth}", columns)


def combine_reports(
    path: TableLike | None,
    invite_file: Path,
    *,
    table: str | None = None,
    tally: SlotTally | None = None,
    mixed: Sequence[TableLike] = (),
    ledger: Ledger | None = None,
    level: float | None = None,
    asked: Mapping[str, float] | None = None,
    assume_mechanism: bool = False,
) -> Release:
    """Phase two: the reports of the devices, blended with what the trusted people said. No noise, no raw rows.

    These reports are charged once, however often they are combined; other reports to the same invitation again. They
    name the invitation that they answer, which must be this one; `assume_mechanism` takes those that name none, and
    says so on the receipt. `asked` (epsilon, delta, record) is refused when the invitation states something else.
    `level` is the invitation's unless given. A `tally` of the reports stands in for a file of them, `path` being None.
    `mixed` are the batches that the invitation's mixer handed on; where there are some, nobody need be local.
    """
    study, invite, found, about = _read_invitation(invite_file)
    must_have_paid(ledger, invite_file)
    if mixed:  # the tally's digest is that of local reports: batches charged under it would be free from then on
        must(tally is None, "mixed", "must go without a tally", f"{len(mixed)} batches beside one")
    else:
        must((path is None) == (tally is not None), "file", "must be left out with a tally, and only then", path)
    stated = study.mixing is not None or not mixed
    must(stated, "mixed", "must answer an invitation that states a mixer (--batch)", f"{len(mixed)} batches")
    states = {"epsilon": study.guarantee.epsilon, "delta": study.guarantee.delta, "record": study.depth}
    for name, wanted in (asked or {}).items():
        must(states[name] == wanted, name, f"must be {states[name]:g}, as in the invitation", wanted)
    if tally is not None:
        tally.origin.stands_in(about.text, None)
        slots = len(invite.head)
        must(len(tally.counts) == slots, "tally", f"must count the {slots} slots", len(tally.counts))
    # Reports are private already: they are read before the charge, which names them.
    must_not_ask(path if ledger is not None else None)
    if tally is not None:
        told = SlotsTold(np.array(tally.counts), tally.origin.simulated, False, tally.origin.digest(tally.to_dict()))
    elif path is not None:
        told = read_slots(path, about.text, len(invite.head), table=table, assume=assume_mechanism)
    else:
        told = SlotsTold(np.zeros(len(invite.head), dtype=np.int64), False, False, "")
    slots_asked = SlotsAsked(about.mixed_text, len(invite.head))
    batches: Batches[SlotReports] = read_batches(mixed, slots_asked, None, study.mixing, assume=assume_mechanism)
    sent = batches if mixed else None
    local = bool(told.digest)
    charges = heavy_charges(study, trusted=False, local=local, mechanism=about.text, digest=told.digest, mixed=sent)
    with spending(ledger, charges, trial=about.simulated) as entries:
        _, estimates = blender.trim(found, study)
        both = (*about.entries, *entries)
        sums = SlotReports(int(told.counts.sum()), told.counts)
        released = publish_heavy(
            study, found, invite, estimates, sums, sums.people, both, about.simulated,
            told.simulated or batches.simulated, level, batches.reports,
        )  # fmt: skip
        taken = assuming(released, about.text if told.assumed else None, batches.assumed)
        shown = noted(taken, (*about.notes, ASKED_BEFORE))
        read = {"record": about.columns}
        return kept(shown, ledger, entries, purpose=_PURPOSE, study=study, columns=read)


# --- publishing -------------------------------------------------------------------------------------------------------


def publish_heavy(
    study: HeavyStudy,
    found: OptInCounts,
    invite: Invitation,
    estimates: list[blending.Estimate],
    told: SlotReports | None,
    local_people: int,
    entries: tuple[int, ...],
    seeded: bool,
    simulated_local: bool,
    level: float | None = None,
    mixed: MixedReports[SlotReports] | None = None,
) -> Release:
    """Blend what the trusted said with the local reports (None: nobody was asked): post-processing, nothing is drawn.

    `entries` are the ledger's; `seeded` and `simulated_local` say what was not real. `mixed` reports are a third group.
    """
    everything, anchor, default = estimates, None, None
    second, shuffled = blender.mixed_invitation(invite.head, study), None
    heard = [(invite.mechanism, told)] if told is not None and told.people else []
    if mixed is not None and mixed.summary.people and second is not None and study.mixing is not None:
        heard.append((second.mechanism, mixed.summary))
        batches = protections.mixed_batches(blender.list_mixing(second, study.mixing), mixed.batches)
        shuffled = Shuffled(GroupEstimate(mixed.summary.people), None, second.mechanism.name,
                            study.mixing.epsilon, study.mixing.batch, batches)  # fmt: skip
    if heard:
        (first, *more) = heard
        everything, anchor, default = blending.held(invite.head, estimates, *first, study.estimator, more)
    counted = blender.blend_heavy(invite.head, everything, anchor)
    blended = blender.restrict(counted, blender.keep_best(counted, study.head))
    level = study.level if level is None else level
    records, wildcards = blender.ranked_records(blended, level)
    queries = blender.ranked_queries(blended, level)
    groups: dict[str, Any] = {
        "trusted": {
            "people": found.discovery_people + found.estimation_people,
            "discovery": found.discovery_people,
            "estimation": found.estimation_people,
        },
        "local": {"people": local_people},
    }
    mixing: dict[str, Any] = {}
    if shuffled is not None:
        groups["shuffled"], mixing = {"people": shuffled.group.people}, {"mixing": shuffled.to_dict()}
    shares = _listed(records)
    facts = statistic(
        "heavy-hitters",
        shares["estimate"],
        shares["interval"],
        records=shares["records"],
        ranks={"best": [r.best_rank for r in records], "worst": [r.worst_rank for r in records]},
        queries=_listed(queries),
        wildcards=_listed(wildcards),
        anchor=None
        if blended.anchor is None
        else {"plain": [r.plain for r in records], "most": [r.most for r in records], "reach": blended.anchor.reach},
        head_list_size=len(queries),
        discovered_records=int(np.isfinite(found.discovered).sum()),
        groups=groups,
        mechanisms={
            "discovery": f"noise of scale {found.discovery.scale:.4g}, threshold {found.discovery.threshold}",
            "estimation": f"laplace noise of scale {found.noise.scale:.4g}",
            "local": invite.mechanism.name if told is not None else "none",
        },
        **mixing,
    )
    return Release(
        {"records": {"shares": facts}},
        level,
        receipt=build_receipt(
            Protection(
                study.trusted_promise,
                "thresholded noisy counts (discovery part) or noisy counts of known slots (estimation part)",
                "no amplification: the head list is shown to local people before the end",
            ),
            Protection(study.local_guarantee, f"{invite.mechanism.name} report on their own device")
            if told is not None and told.people
            else None,
            mixed=protections.mixed_promises(shuffled),
            assumes=(*_ASSUMES, *protections.mixed_assumptions(shuffled), *_default(default)),
            randomness="seeded generator, simulation only" if seeded else "system randomness",
            seeded=seeded,
            simulated_local=simulated_local,
            reads="record",
            entries=entries,
        ),
    )


def _listed(records: tuple[HeavyRecord, ...]) -> dict[str, Any]:
    """Parallel lists, one entry a record."""
    return {
        "records": [list(r.record) for r in records],
        "estimate": [r.estimate for r in records],
        "interval": [[r.low for r in records], [r.high for r in records]],
    }


def _default(default: Anchoring | None) -> list[str]:
    return [] if default is None else [default.words("hybrid", "a trusted share", "at equal shares", default.reach)]


_ASSUMES = (
    public_choice("records are"),
    "one record of each person is used, chosen from their own records alone; a person without one counts for the rest",
    choice_unprotected("records"),
    "devices report as stated, and answer an invitation once; a dishonest one counts as a report for what it likes",
    "assumes that people who trust and people who do not are alike: each group counts by its errors",
)
