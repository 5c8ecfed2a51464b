"""K-means over files: in one go (a trial for local people), or with an invitation that travels to the devices.

The invitation holds the public map: everybody's device answers with one cell, once. The curator then blends those
reports with the trusted rows. A conversation of several rounds needs devices that are online; a file holds one answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally import SlotTally
from hybridp.curator.kmeans import PointQuery, check_points, store_points
from hybridp.curator.reports import read_slots
from hybridp.curator.sources import TableLike, open_rows
from hybridp.device import files as device
from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.ledger import Ledger
from hybridp.protocols.kmeans import KMeansStudy, SimulatedCrowd, cluster, publish_kmeans
from hybridp.protocols.paying import kept, on_reports, spending
from hybridp.public import envelope
from hybridp.public.budgets import promised
from hybridp.public.kmeans import Box, Grid
from hybridp.public.kmeans_rounds import MapInvite, RoundInvite, RoundReports, map_invite
from hybridp.public.lattice import missing_each
from hybridp.public.messages import report_text
from hybridp.public.trust import LABEL, Trusts, drawn_trust, label_column
from hybridp.randomness import Randomness, secure
from hybridp.release.receipt import assuming, noted
from hybridp.release.release import Release

__all__ = ["PointColumns", "ToldCells", "map_for", "read_invitation", "release_kmeans", "write_invitation"]
__all__ += ["write_point_reports"]

_INVITATION = "invitation to a map of K-means"
_SIMULATED = " SIMULATED"


@dataclass(frozen=True, slots=True)
class PointColumns:
    """The coordinates' columns, in the order of the bounds, and the one that says `trusted` or `local`."""

    coordinates: tuple[str, ...]
    trust: Trusts
    missing: tuple[float | str, ...] | float | str | None = None

    @property
    def absent(self) -> tuple[float | str, ...] | None:
        """What a missing coordinate of each column counts as: a number within the bounds, or "middle"."""
        return missing_each(self.missing, len(self.coordinates))


@dataclass(frozen=True, slots=True)
class _Said:
    """What reports say of themselves: whether a program drew them, whether their mechanism is only assumed; a name."""

    simulated: bool = False
    assumed: bool = False
    digest: str | None = None


@dataclass(frozen=True)
class ToldCells:
    """Local people who have answered the map already, all of them."""

    counts: NDArray[np.int64]

    @property
    def people(self) -> int:
        return int(self.counts.sum())

    def tell_cell(self, invite: MapInvite, part: int, parts: int) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.counts)), self.counts if part == 0 else 0)

    def tell_deviation(self, invite: RoundInvite, part: int, parts: int) -> RoundReports:
        nobody = np.zeros((0, invite.coordinates), dtype=np.int64)
        return RoundReports(nobody[:, 0], nobody, nobody.astype(np.float64))


def release_kmeans(
    path: TableLike,
    study: KMeansStudy,
    columns: PointColumns,
    *,
    table: str | None = None,
    simulate_local: bool = False,
    reports: Path | None = None,
    invite: Path | None = None,
    tally: SlotTally | None = None,
    ledger: Ledger | None = None,
    purpose: str = "kmeans",
    collection: str | None = None,
    assume_mechanism: bool = False,
    rng: Randomness | None = None,
) -> Release:
    """Release centres from a table of trusted points.

    Local people come in as `reports` that answer the invitation `invite`, or as a `tally` of them, or, for a trial, as
    raw rows that are randomised here (`simulate_local`). The ledger is charged before a row is read. Guarantee: as
    `study.trusted_whole` says for trusted people, epsilon-DP for each local report.
    """
    rng = secure() if rng is None else rng
    drawn = drawn_trust(columns.trust)
    simulate_local = simulate_local or drawn
    must(reports is None or tally is None, "reports", "must not go with a tally of them", reports)
    told = reports if tally is None else "a tally"
    must((told is None) == (invite is None), "reports", "must be given together with the invitation", told)
    must(not (simulate_local and told), "reports", "must not go with simulated local people", told)
    asked = None
    if invite is not None:
        asked = invitation_to(study, columns, invite)
        if tally is not None:
            collection = tally.origin.stands_in(asked[1], collection)
            cells = asked[0].grid.cells
            must(len(tally.counts) == cells, "tally", f"must count the {cells} cells", len(tally.counts))
    uses_local = simulate_local or asked is not None
    groups = ("trusted", "local") if uses_local else ("trusted",)
    which = {} if asked is None else {"reports": asked[1]}
    local: Any = None
    said = _Said()
    if asked is not None and tally is not None:
        local = ToldCells(np.array(tally.counts, dtype=np.int64))
        said = _Said(tally.origin.simulated, digest=tally.origin.digest(tally.to_dict()))
    elif asked is not None and reports is not None:  # private already: read before the charge, which names them
        sent = read_slots(reports, asked[1], asked[0].grid.cells, assume=assume_mechanism)
        local, said = ToldCells(sent.counts), _Said(sent.simulated, sent.assumed, sent.digest)
    charges = study.charges(purpose, collection, groups=groups, **which)
    charges, _ = on_reports(charges, trial=simulate_local, digest=said.digest)
    label = label_column(columns.trust)
    query = PointQuery(columns.coordinates, label, study.box, simulate_local, columns.absent)
    trial = rng.simulated or simulate_local
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "rng": rng}
    with spending(ledger, charges, trial=trial, path=path) as entries, open_rows(path, **opened) as rows:
        people = check_points(rows, query)
        if people[1] and not uses_local:
            these = "Rows are local" if label == LABEL else f"Column `{label}` labels rows `local`"
            raise UnusablePublicRows(
                f"{these}: give their --reports with the --invite that they answer (`hybridp randomise kmeans`), or "
                "add --simulate-local for a trial on raw rows."
            )
        trusted = store_points(rows, query, "trusted") if people[0] else None
        plan = None
        if asked is not None:
            people = people[0], local.people
            plan = study.rounds_after(asked[0], *people)
        elif uses_local and people[1]:
            local = SimulatedCrowd(np.concatenate([*store_points(rows, query, "local").parts()], axis=1), rng)
        must(sum(people) >= study.clusters, "clusters", f"must be at most the {sum(people)} people", study.clusters)
        found, plan = cluster(study, trusted, local, plan=plan, rng=rng)
        released = publish_kmeans(
            study,
            found,
            plan,
            columns=columns.coordinates,
            people=people,
            entries=tuple(entries),
            simulated_local=said.simulated or drawn or (simulate_local and people[1] > 0 and uses_local),
            missing=columns.absent,
            rng=rng,
        )
        released = assuming(released, asked[1] if asked is not None and said.assumed else None)
        released = noted(released, rows.notes)
        return kept(released, ledger, entries, purpose=purpose, study=study, columns=columns)


# --- the invitation ---------------------------------------------------------------------------------------------------


def write_invitation(
    study: KMeansStudy, columns: tuple[str, ...], *, trusted: int, local: int, out: Path,
    missing: tuple[float | str, ...] | float | str | None = None,
) -> MapInvite:  # fmt: skip
    """The map for these public numbers, as a file for the devices. No data is read, nothing is spent."""
    must(len(columns) == study.box.dims, "columns", f"must be {study.box.dims}, as the bounds", columns)
    made, stated = map_for(study, trusted, local), missing_each(missing, len(columns))
    content = {
        "columns": list(columns),
        "lower": list(study.box.lower),
        "upper": list(study.box.upper),
        "clusters": study.clusters,
        "epsilon": study.guarantee.epsilon,
        "delta": study.guarantee.delta,
        "per_axis": made.grid.per_axis,
        **({} if stated is None else {"missing": list(stated)}),
    }
    must(out.parent.is_dir(), "invite", "must lie in an existing folder", out)
    envelope.save(out, envelope.sealed(_INVITATION, content, simulated=False))
    return read_invitation(out)[1]


def map_for(study: KMeansStudy, trusted: int, local: int) -> MapInvite:
    """The map that so many expected people are asked about: from public numbers alone."""
    plan, rule = study.rounds(trusted, local, iterations=2), "must be more, or epsilon larger, or coordinates and"
    must(plan.per_axis > 0, "people", f"{rule} clusters fewer, for a useful map", trusted + local)
    return map_invite(Grid(study.box, plan.per_axis), study.guarantee.epsilon)


def read_invitation(file: Path) -> tuple[KMeansStudy, MapInvite, tuple[str, ...], str]:
    """Study, map, columns, and the mechanism's one-line text that stands beside every report."""
    try:
        document = envelope.load(file, _INVITATION)
        box = Box(tuple(map(float, document["lower"])), tuple(map(float, document["upper"])))
        epsilon, delta = float(document["epsilon"]), float(document["delta"])
        study = KMeansStudy(box, document["clusters"], promised(epsilon, delta))
        columns = tuple(document["columns"])
        named = len(columns) == box.dims and all(isinstance(c, str) for c in columns)
        if not (isinstance(study.clusters, int) and named):
            raise ValueError
        grid = Grid(box, document["per_axis"])
        invite = map_invite(grid, epsilon)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation to a map of K-means. Got {file}.") from None
    digest = document["digest"].removeprefix("sha256:")[:16]
    return study, invite, columns, report_text(f"map(cells={grid.cells},epsilon={epsilon!r},invite={digest})", columns)


def write_point_reports(
    path: TableLike,
    invite_file: Path,
    out: Path,
    *,
    trust: Trusts | None = None,
    table: str | None = None,
    rng: Randomness | None = None,
) -> int:
    """What the devices do: one cell for each local row (every row without `trust`), in a CSV that holds nothing else.

    Reports are written cell by cell, so that their order tells nothing, with a random name of this batch beside them.
    """
    rng = secure() if rng is None else rng
    _, invite, columns, text = read_invitation(invite_file)
    must(out.name.lower().endswith(".csv"), "out", "must end in .csv", out)
    must(out.parent.is_dir() and not out.exists(), "out", "must be a new file in an existing folder", out)
    must(not drawn_trust(trust), "trial-opt-in", "must be for a release: devices do not draw who trusts", "a trial")
    mark = text + (_SIMULATED if rng.simulated else "")
    missing = tuple(envelope.load(invite_file, _INVITATION).get("missing", ())) or None
    where: dict[str, Any] = {"trust": trust, "text": mark, "missing": missing, "table": table}
    return device.write_point_reports(path, invite, columns, out, **where, rng=rng)


def invitation_to(study: KMeansStudy, columns: PointColumns, file: Path) -> tuple[MapInvite, str]:
    """The map of an invitation, and its text. One to another study could promise less, or ask about other columns."""
    invited, invite, names, text = read_invitation(file)
    same = replace(study, iterations=None, trusted_guarantee=None) == invited and names == columns.coordinates
    must(same, "invite", "must be to this question, with its columns, bounds, clusters and promise", file)
    return invite, text
