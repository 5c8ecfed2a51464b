"""The task document: everything that a participant's page or program must know, and no more than is public."""

from __future__ import annotations

import json
import math
from itertools import accumulate
from typing import Any

from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.public.mixing import public, text
from hybridp.public.randomisers import LEVELS, WORD
from hybridp.service.fields import DIGITS, FORM_NUMBER
from hybridp.service.plans import Plan
from hybridp.service.settings import RowCipher
from hybridp.service.words import notices

__all__ = ["mixer_keys", "task_of"]

VERSION = 2
_PHASES = {1: ["trusted"], 2: ["local"]}
"""Who is asked in which phase, where there are two; between them nobody."""
_FORM_ROOM = 256


def level_of(budget: PureDP | ApproxDP) -> dict[str, float]:
    return {"epsilon": budget.epsilon, "delta": budget.delta}


def task_of(study_id: str, plan: Plan, phase: int) -> dict[str, Any]:
    """The document of a study in a phase, as `plan` asks in it."""
    questions = [one.described() for one in plan.parts]
    for told, one in zip(questions, plan.parts, strict=True):
        if not plan.choices:
            told["guarantee"] = level_of(one.promise)
    task = {
        "id": study_id,
        "version": VERSION,
        "title": plan.declared.title,
        "asked_by": plan.declared.asked_by,
        "purpose": plan.collection.purpose,
        "contact": plan.collection.contact,
        "question": plan.declared.questions[0].text if len(plan.parts) == 1 else "",
        "phase": phase,
        "groups": _PHASES.get(phase, []) if plan.phased else ["trusted", "local"],
        "opens": plan.opens,
        "closes": plan.closes,
        "time_precision": plan.collection.time_precision,
        "by_invitation": plan.collection.by_invitation,
        "min_batch": plan.collection.min_batch,
        "releases": plan.collection.releases,
        "delete_raw_after_release": plan.collection.delete_raw_after_release,
        "delete_by": plan.delete_by,
        "uses": list(plan.uses),
        "levels": str(LEVELS),
        "word": str(WORD),
        "questions": questions,
        "draws": _draws(plan),
        "by": [{"name": groups.name, "categories": groups.shown.options} for groups in plan.categories],
        "bytes": sizes(plan),
    }
    if any("columns" in told for told in questions):
        # What a trusted person answers where that is not question by question: a table's columns, or a private group.
        task["columns"] = [given.column() for one in plan.asked for given in one.fields]
    if plan.choices:
        task["choices"] = [_choice(plan, epsilon) for epsilon in plan.choices]
    else:
        # Each group's whole promise, over all the releases that are planned, and what one release spends of it.
        whole = {"trusted": level_of(plan.accounts()["trusted"]), "local": level_of(plan.local_promise)}
        task |= {"guarantee": whole, "each_release": {"trusted": level_of(plan.each_release)}}
    task |= _mixed(plan, task)
    return task | {"notice": notices(task)}


def _choice(plan: Plan, epsilon: float) -> dict[str, Any]:
    """How a person's device reports who chose this epsilon."""
    found = dict(plan.parts[0].at(epsilon).reports.mechanism)
    return {"epsilon": epsilon, "randomiser": found, "browser": found["browser"]}


def _draws(plan: Plan) -> list[str] | None:
    """Where each question ends among the words from 0 to 2^64 by which a device draws one; None where all are asked."""
    if not plan.drawn:
        return None
    ends = [round(end * WORD) for end in accumulate(plan.chances.values())]
    return [str(end) for end in (*ends[:-1], WORD)]


def _mixed(plan: Plan, task: dict[str, Any]) -> dict[str, Any]:
    """The third way: a mixer, and what a report keeps by itself and in a batch of the stated size."""
    mixer, mixing = plan.declared.mixer, plan.declared.mixing
    if mixer is None or mixing is None:
        return {}
    (one,), kept = plan.mixed, mixing.promise(mixer.batch)
    if kept.delta:  # everybody reads it: four decimals, rounded up, and never more than is promised
        kept = promised(min(math.ceil(kept.epsilon * 1e4) / 1e4, plan.declared.guarantee.epsilon), kept.delta)
    stated = {"url": mixer.url, "key": mixer.key, "batch": mixer.batch, "closes": plan.closes, "run_by": mixer.run_by}
    drawn = {"randomiser": dict(one.reports.mechanism), "bytes": task["bytes"]["shuffled"]}
    promises = task["guarantee"] | {"shuffled": level_of(one.promise), "mixed": level_of(kept)}
    return {"groups": ["trusted", "shuffled", "local"], "mixer": {**stated, **drawn}, "guarantee": promises}


def mixer_keys(task: dict[str, Any], cipher: RowCipher | None) -> dict[str, Any]:
    """The task with the keys that reports are sealed for and tickets signed with, as long as there are any."""
    if "mixer" not in task or cipher is None:
        return task
    keys = {"report_key": text(public(cipher.mixed)), "ticket_key": text(cipher.signer.public)}
    return task | {"mixer": task["mixer"] | keys}


def sizes(plan: Plan) -> dict[str, int]:
    """How many bytes a report of each group has on its way, whatever it says: as JSON, and as the page's form.

    What is shorter is padded up to it by whoever sends it. A page without scripts cannot.
    """
    token, epsilon = "x" * 22 if plan.collection.by_invitation else None, DIGITS if plan.choices else None
    frame = {"id": "x" * 22, "time": 10**10, "token": token, "epsilon": epsilon, "padding": ""}
    answers = {given.name: given.longest[0] for given in plan.entrusted}
    sent = [{one.name: one.at(own).reports.longest for one in plan.packed} for own in plan.choices or (None,)]
    drawn = [{name: report} for each in sent for name, report in each.items()] if plan.drawn else sent
    fields = sum(given.longest[1] + len("&answer.00=") for given in plan.entrusted)
    fields += FORM_NUMBER if plan.choices else 0

    def size(document: dict[str, Any]) -> int:
        return len(json.dumps(document, separators=(",", ":")))

    found = {
        "trusted": size(frame | {"group": "trusted", "payload": {"answers": answers}}),
        "local": max(size(frame | {"group": "local", "payload": {"reports": told}}) for told in drawn),
        "form": fields + _FORM_ROOM,  # room for the names of the fields that every form has
    }
    if plan.mixed:
        told = {one.name: one.reports.longest for one in plan.mixed}
        found["shuffled"] = size({"id": "x" * 22, "payload": {"reports": told}, "padding": ""})
    return found
