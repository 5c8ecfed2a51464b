"""RAW: both groups' part in a synthetic data set, read from one table: trusted codes, and local reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hybridp import tables
from hybridp.curator.marginals import Codes
from hybridp.curator.mean import Columns
from hybridp.curator.shares import batch_digest
from hybridp.curator.sources import chosen_by, must_not_ask
from hybridp.errors import UnusablePublicRows
from hybridp.public.synth_reports import MarginalInvite, MarginalReports, read_marginal_reports
from hybridp.public.trust import Trusts, label_column, rule_of
from hybridp.randomness import Randomness
from hybridp.tables import marginals
from hybridp.tables.columns import count_people, local_rows, local_texts
from hybridp.tables.mean import CHUNK
from hybridp.tables.source import TableLike

__all__ = ["REPORT", "GroupCodes", "read_groups"]

REPORT = "report"


@dataclass(frozen=True, eq=False)
class GroupCodes:
    """RAW: the codes of trusted people; of local ones their reports or, in a trial, their codes. Never leaves."""

    trusted: Codes
    local: MarginalReports | None = None
    local_raw: Codes | None = None
    simulated: bool = False
    assumed: bool = False
    digest: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def local_people(self) -> int:
        if self.local_raw is not None:
            return self.local_raw.people
        return 0 if self.local is None else self.local.people

    @property
    def people(self) -> int:
        return self.trusted.people + self.local_people


def read_groups(
    path: TableLike,
    invite: MarginalInvite,
    trust: Trusts,
    *,
    table: str | None = None,
    local_raw: bool = False,
    assume: bool = False,
    pilot: bool = False,
    rng: Randomness,
) -> GroupCodes:
    """Both groups. Reports of another mechanism, or of none unless it is assumed, are refused; no field ever is.

    With a `pilot` the trusted people have been asked before: their rows are not read.
    """
    if pilot:
        must_not_ask(path)
    labels, schema = label_column(trust), invite.schema
    with tables.open_rows(path, table=table, trust=trust, rng=rng) as rows:
        if local_raw or not (pilot or (rows.trust is not None and rows.trust.everyone == "local")):
            marginals.check_declared(rows, schema)
        counted, notes = count_people(rows, labels, None), rows.notes
        rule = rule_of(trust)
        if pilot and rule is not None:  # who trusts was asked before this file
            notes = tuple(note for note in notes if note != rule.rule)
        nobody = np.zeros((len(schema.sizes), 0), dtype=np.uint16)
        values = nobody if pilot else marginals.codes(rows, schema, trust=labels)
        trusted = Codes(schema, values, chosen_by(path, table, trust))
        if local_raw:
            raw = Codes(schema, marginals.codes(rows, schema, trust=labels, label="local"))
            return GroupCodes(trusted, None, raw, simulated=True, notes=notes)
        if not counted.local:
            return GroupCodes(trusted, MarginalReports.nobody(invite), None, notes=notes)
        if REPORT not in rows.columns:
            raise UnusablePublicRows(
                f"{local_rows(labels)}, and no column `{REPORT}` holds their reports: make them with `hybridp "
                "randomise synth`, or add --simulate-local for a trial on raw rows."
            )
        says = tables.check_mechanism(rows, labels, f"{REPORT}_mechanism", invite.text)
        told = MarginalReports.nobody(invite)
        for texts in local_texts(rows, REPORT, labels, CHUNK):
            told = told + read_marginal_reports(invite, texts, REPORT)
        assumed = tables.named_mechanism(f"{REPORT}_mechanism", says, told.people, assume=assume)
        counts = np.concatenate([one.counts for one in told.told])
        digest = batch_digest(rows, Columns("", trust, REPORT), invite.text, counts, told.people)
        return GroupCodes(trusted, told, None, bool(says), assumed, digest, notes)
