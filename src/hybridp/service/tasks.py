"""The task document: everything that a participant's page or program must know, and nothing that depends on the time.

Probabilities are whole numbers over 2^64, written as decimal strings, so that a browser draws them exactly and computes
no exponential.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import k_randomised_response
>>> described(k_randomised_response(PureDP(1.0), 3))["categories"]
3
"""

from __future__ import annotations

import json
import math
from itertools import accumulate
from typing import Any

from hybridp.protocols.heavy import Invitation
from hybridp.protocols.joint import JointStudy
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.number import NumberStudy
from hybridp.protocols.regression import RegressionStudy
from hybridp.protocols.regression_files import Invitation as Line
from hybridp.protocols.shares import ShareStudy
from hybridp.protocols.ticks import TickStudy
from hybridp.protocols.vector import VectorStudy
from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.public.heavy import TEXT_RULE, OneSlot
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite
from hybridp.public.mixing import public, text
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import (
    LEVELS,
    WORD,
    DitheredBit,
    KRandomisedResponse,
    LocalAdditive,
    Piecewise,
    Randomiser,
    best_randomiser,
)
from hybridp.public.study import Number, Points, Regression, Vector
from hybridp.public.vector import VectorInvite
from hybridp.public.vector_randomisers import ScalarReports, UnitVector
from hybridp.service.keys import RowCipher
from hybridp.service.plans import (
    Head,
    HeavyPlan,
    MeanPlan,
    PersonalPlan,
    PointsPlan,
    QuestionsPlan,
    RegressionPlan,
    SomePlan,
    TablePlan,
    VectorPlan,
)
from hybridp.service.questions import Asked, Category
from hybridp.service.words import notices

__all__ = ["described", "described_vector", "mixer_keys", "task_of"]

_PHASES = {1: ["trusted"], 2: ["local"]}
"""Who is asked in which phase, where there are two; between them nobody."""
Mechanism = DitheredBit | Piecewise | LocalAdditive | KRandomisedResponse | SubsetSelection | OneSlot | UnitVector


def described(mechanism: Mechanism) -> dict[str, Any]:
    """A randomiser as plain data; `browser` says whether the page can draw it exactly."""
    match mechanism:
        case DitheredBit():
            return {"name": "dithered", "flips": str(mechanism.flips), "gain": mechanism.gain, "browser": True}
        case Piecewise():
            own = {"width": str(mechanism.width), "inside": str(mechanism.inside)}
            return {"name": "piecewise", **own, "bound": mechanism.bound, "browser": True}
        case LocalAdditive():
            return {"name": mechanism.name, "bound": mechanism.bound, "browser": False}
        case KRandomisedResponse():
            return {"name": "k-rr", **_kept(mechanism), "browser": True}
        case SubsetSelection():
            of = {"categories": mechanism.categories, "size": mechanism.size}
            return {"name": "subset", **of, "keep": str(mechanism.keep), "browser": True}
        case UnitVector():
            cap: dict[str, Any] = {"pairs": mechanism.pairs, "top": mechanism.top, "inside": str(mechanism.inside)}
            return {"name": mechanism.name, "dimensions": mechanism.dimensions, **cap, "browser": False}
        case OneSlot():
            return {"name": mechanism.name, "browser": True}


def described_vector(invite: VectorInvite) -> dict[str, Any]:
    """A report about several numbers. The page draws some coordinates of a box; a ball it leaves to a program."""
    reports, bounds = invite.reports, invite.bounds
    if not isinstance(reports, ScalarReports):
        return described(reports)
    each = described(reports.randomiser)
    return {
        "name": "coordinates",
        "dimensions": reports.dimensions,
        "reported": reports.reported,
        "reach": bounds.reach_steps,
        "each": each,
        "browser": each["browser"] and bounds.radius_steps is None,
    }


def described_question(one: Asked) -> dict[str, Any]:
    """One of a study's questions: what is asked, and how a local person's device answers it, at which part of the
    promise. `mechanism` is the line that a device writes beside its report in a table."""
    found = described_column(one)
    match one.study:
        case ShareStudy() | TickStudy():
            found["randomiser"] = described(one.study.invite.oracle)
            if isinstance(one.study, TickStudy):
                found["randomiser"] |= {"name": "one-option", "options": len(one.options)}
        case JointStudy():
            found["randomiser"] = described(one.study.invite.oracle)
            found["columns"] = [column.name for column in one.columns]
            if isinstance(one.study.joint.answers, Bounds):  # a number counts as one of its bounds, by chance
                ends = one.study.joint.answers
                found |= {"bounds": {"lower": ends.lower, "upper": ends.upper}, "steps": one.study.joint.steps}
        case MeanStudy() | NumberStudy():
            assert isinstance(one.question, Number)
            found["statistics"] = list(one.question.statistics)
            found["randomiser"] = described(_number_invite(one).randomiser)
            if one.steered:  # around what trusted people say: shares of the range, in exact doubles
                found |= {"form": "steered", "windows": [list(window) for window in _number_invite(one).windows]}
        case VectorStudy():
            assert isinstance(one.question, Vector)
            found |= _described_vector(one.question, one.study.invite)
        case KMeansStudy():
            assert isinstance(one.question, Points)
            assert isinstance(one.invite, MapInvite)
            found |= _described_map(one.question, one.invite)
        case RegressionStudy():
            assert isinstance(one.question, Regression)
            found |= {"model": one.question.model}
            found |= _described_line(one.within) if isinstance(one.within, Line) else {}
    if not isinstance(one.study, RegressionStudy) and not isinstance(one.invite, MapInvite):
        found |= {"mechanism": one.invite.text}  # a map stands in no table, and a line says its own
    return {**found, "guarantee": _level(one.promise)}


def _described_line(line: Line) -> dict[str, Any]:
    asked = line.question
    about = {"form": asked.form, "centre": list(asked.centre), "clip": asked.clip}
    return {"line": about, "randomiser": described_vector(asked.invite), "mechanism": line.text}


def _described_vector(question: Vector, invite: VectorInvite) -> dict[str, Any]:
    return {
        "coordinates": _sides(question.columns, question),
        "norm": question.norm,
        "radius": question.radius,
        "randomiser": described_vector(invite),
    }


def _described_map(question: Points, invite: MapInvite) -> dict[str, Any]:
    return {
        "coordinates": _sides(question.columns, question),
        "clusters": question.clusters,
        "grid": {"per_axis": invite.grid.per_axis, "cells": invite.grid.cells},
        "randomiser": described(invite.response),
    }


def described_column(one: Asked) -> dict[str, Any]:
    """What is asked, as a field of a form; of a question about a private group too, every pair that a report names."""
    found: dict[str, Any] = {"name": one.name, "kind": one.question.kind, "text": one.question.text}
    match one.study:
        case ShareStudy() | TickStudy() | JointStudy():
            several = one.study.most if isinstance(one.study, TickStudy) else None
            found |= {"options": list(one.options), "several": several}
            edges = () if isinstance(one.study, JointStudy) else one.study.question.edges
            if edges:  # a program may give the number; a page lists the bins
                found |= {"edges": list(edges)}
        case MeanStudy() | NumberStudy():
            assert isinstance(one.question, Number)
            bounds = {"lower": one.question.lower, "upper": one.question.upper}
            found |= {"unit": one.question.unit, "bounds": bounds, "step": one.question.step}
        case VectorStudy() | KMeansStudy() | RegressionStudy():
            assert isinstance(one.question, Vector | Points | Regression)
            found |= {"coordinates": _sides(one.coordinates, one.question)}
    return found


def _number_invite(one: Asked) -> Invite:
    assert isinstance(one.invite, Invite)
    return one.invite


def _columns(plan: QuestionsPlan, questions: list[dict[str, Any]]) -> dict[str, Any]:
    """What a trusted person answers where that is not question by question: the columns of a synthetic table, or a
    private group too. Of every question that a report answers: the columns whose cells are its options."""
    columns = [described_column(one) for one in plan.entrusted if isinstance(one, Asked)]
    if isinstance(plan, TablePlan):
        own = ([columns[f]["name"] for f in features] for features in plan.study.invite.marginals)
        questions = [{**told, "columns": names} for told, names in zip(questions, own, strict=True)]
    return {"columns": columns, "questions": questions} if any("columns" in told for told in questions) else {}


def _draws(plan: QuestionsPlan) -> list[str] | None:
    """Where each question ends among the words from 0 to 2^64 by which a device draws one; None where all are asked."""
    if not plan.drawn:
        return None
    ends = [round(end * WORD) for end in accumulate(plan.chances.values())]
    return [str(end) for end in (*ends[:-1], WORD)]


def _kept(mechanism: KRandomisedResponse) -> dict[str, Any]:
    return {"keep": str(mechanism.keep), "categories": mechanism.categories}


def _level(budget: PureDP | ApproxDP) -> dict[str, float]:
    return {"epsilon": budget.epsilon, "delta": budget.delta}


def task_of(study_id: str, plan: SomePlan, phase: int, head: Head | None) -> dict[str, Any]:
    """The document of a study in a phase; `head` is the invitation of a second phase."""
    common = {
        "id": study_id,
        "version": 1,
        "kind": plan.kind,
        "title": plan.title,
        "asked_by": plan.asked_by,
        "purpose": plan.purpose,
        "contact": plan.contact,
        "question": plan.question,
        "unit": plan.unit,
        "phase": phase,
        "groups": ["trusted", "local"],
        "opens": plan.opens,
        "closes": plan.closes,
        "time_precision": plan.time_precision,
        "by_invitation": plan.by_invitation,
        "min_batch": plan.min_batch,
        "releases": plan.planned_releases,
        "delete_raw_after_release": plan.delete_raw_after_release,
        "delete_by": plan.delete_by,
        "uses": list(plan.uses),
        "levels": str(LEVELS),
        "word": str(WORD),
    }
    own: dict[str, Any]
    match plan:
        case MeanPlan():
            own = {
                "bounds": {"lower": plan.asked.lower, "upper": plan.asked.upper},
                "step": plan.asked.step,
                **_promised(plan, plan.study.invite.promise),
                "randomiser": described(plan.study.invite.randomiser),
            }
            own |= _mixed(plan, own["guarantee"])
        case PersonalPlan():
            mechanisms = {e: described(best_randomiser(PureDP(e))) for e in plan.allowed_epsilons}
            own = {
                "bounds": {"lower": plan.asked.lower, "upper": plan.asked.upper},
                "step": plan.asked.step,
                "choices": [{"epsilon": e, "randomiser": r, "browser": r["browser"]} for e, r in mechanisms.items()],
            }
        case VectorPlan():
            own = {**_described_vector(plan.asked, plan.invite), **_promised(plan, plan.invite.promise)}
        case PointsPlan():
            own = {**_described_map(plan.asked, plan.invite), **_promised(plan, plan.invite.promise)}
        case RegressionPlan():
            own = {
                "groups": _PHASES.get(phase, []),
                "model": plan.asked.model,
                "coordinates": _sides(plan.columns, plan.asked),
                **_promised(plan, plan.local_promise),
            }
            if isinstance(head, Line):
                own |= _described_line(head)
        case HeavyPlan():
            own = {
                "groups": _PHASES.get(phase, []),
                "record": list(plan.record),
                "max_records": plan.asked.max_records,
                "max_length": plan.asked.max_length,
                "text_rule": TEXT_RULE,
                **_promised(plan, plan.study.local_guarantee),
            }
            if isinstance(head, Invitation):
                own |= {"slots": [list(s) for s in head.head.slots], "randomiser": described(head.mechanism)}
        case QuestionsPlan():
            own = {
                "groups": _PHASES.get(phase, []) if plan.phased else common["groups"],
                "questions": [described_question(one) for one in plan.parts_within(head)],
                "draws": _draws(plan),
                "by": [{"name": groups.name, "categories": list(groups.names)} for groups in plan.categories],
                **_promised(plan, plan.local_promise),
            }
            own |= _columns(plan, own["questions"])
    task: dict[str, Any] = common | own | {"bytes": sizes(plan, head)}
    if plan.mixer is not None:
        task["mixer"] = task["mixer"] | {"bytes": task["bytes"]["shuffled"]}
    return task | {"notice": notices(task)}


def _sides(columns: tuple[str, ...], question: Vector | Regression | Points) -> list[dict[str, Any]]:
    """The numbers that a person is asked for; one that is 0 or 1 is asked for as no or yes."""
    sides = zip(columns, question.lower, question.upper, strict=True)
    found: list[dict[str, Any]] = [{"name": name, "lower": lower, "upper": upper} for name, lower, upper in sides]
    if isinstance(question, Regression) and question.model == "logistic":
        found[-1]["yes"] = True
    return found


def _mixed(plan: MeanPlan, guarantee: dict[str, Any]) -> dict[str, Any]:
    """The third way: a mixer, and what a report keeps by itself and in a batch of the stated size."""
    mixer, mixing, invite = plan.mixer, plan.study.mixing, plan.study.mixed_invite
    if mixer is None or mixing is None or invite is None:
        return {}
    kept = mixing.promise(mixer.batch)
    if kept.delta:  # everybody reads it: four decimals, rounded up, and never more than is promised
        kept = promised(min(math.ceil(kept.epsilon * 1e4) / 1e4, plan.study.guarantee.epsilon), kept.delta)
    stated = {"url": mixer.url, "key": mixer.key, "batch": mixer.batch, "closes": plan.closes}
    stated |= {"run_by": mixer.run_by}
    return {
        "groups": ["trusted", "shuffled", "local"],
        "mixer": {**stated, "randomiser": described(invite.randomiser)},
        "guarantee": guarantee | {"shuffled": _level(invite.promise), "mixed": _level(kept)},
    }


def mixer_keys(task: dict[str, Any], cipher: RowCipher | None) -> dict[str, Any]:
    """The task with the keys that reports are sealed for and tickets signed with, as long as there are any."""
    if "mixer" not in task or cipher is None:
        return task
    keys = {"report_key": text(public(cipher.mixed)), "ticket_key": text(cipher.signer.public)}
    return task | {"mixer": task["mixer"] | keys}


# --- sizes ------------------------------------------------------------------------------------------------------------

_BIT = {"threshold": LEVELS - 1, "above": False}
_DIGITS = 10**24  # 25 characters: no double is written longer, in Python or in a browser
_FORM_NUMBER, _FORM_CHARACTER, _FORM_ROOM = 40, 9, 256


def sizes(plan: SomePlan, head: Head | None) -> dict[str, int]:
    """How many bytes a report of each group has on its way, whatever it says: as JSON, and as the page's form.

    What is shorter is padded up to it by whoever sends it. A page without scripts cannot.
    """
    trusted, local, fields = _longest(plan, head)
    token = "x" * 22 if plan.by_invitation else None
    epsilon = _DIGITS if isinstance(plan, PersonalPlan) else None
    frame = {"id": "x" * 22, "time": 10**10, "token": token, "epsilon": epsilon, "padding": ""}

    def size(group: str, payload: Any) -> int:
        return len(json.dumps(frame | {"group": group, "payload": payload}, separators=(",", ":")))

    found = {
        "trusted": size("trusted", trusted),
        "local": max(size("local", payload) for payload in local),
        "form": fields + _FORM_ROOM,  # room for the names of the fields that every form has
    }
    if isinstance(plan, MeanPlan) and plan.study.mixed_invite is not None:
        sealed = {"id": "x" * 22, "payload": _number(plan.study.mixed_invite.randomiser), "padding": ""}
        found["shuffled"] = len(json.dumps(sealed, separators=(",", ":")))
    return found


def _number(mechanism: Randomiser) -> dict[str, Any]:
    """The longest report on a number."""
    return {"report": _BIT if isinstance(mechanism, DitheredBit) else _DIGITS}


def _longest(plan: SomePlan, head: Head | None) -> tuple[Any, list[Any], int]:
    """The longest payload of a trusted person, those of local people, and the characters of a form's own fields."""
    match plan:
        case MeanPlan():
            return {"value": _DIGITS}, [_number(plan.study.invite.randomiser)], _FORM_NUMBER
        case PersonalPlan():
            offers = [_number(best_randomiser(PureDP(e))) for e in plan.allowed_epsilons]
            return {"value": _DIGITS}, offers, 2 * _FORM_NUMBER
        case VectorPlan():
            return _longest_vector(plan.columns, plan.invite)
        case PointsPlan():
            trusted, _, characters = _longest_vector(plan.columns, None)
            return trusted, [{"category": plan.invite.grid.cells}], characters
        case RegressionPlan():
            return _longest_vector(plan.columns, head.question.invite if isinstance(head, Line) else None)
        case HeavyPlan():
            # A character is 4 bytes of UTF-8 at most, and 9 in a form (%XX for each of 3, or of 4 in two halves).
            parts = ["x" * (4 * plan.asked.max_length) for _ in plan.record]
            slots = len(head.head) if isinstance(head, Invitation) else 0
            room = len(parts) * (_FORM_CHARACTER * plan.asked.max_length + len("&record.0="))
            return {"records": [parts]}, [{"category": max(slots - 1, 0)}], room
        case QuestionsPlan():
            longest = [(one.name, *_longest_of(one)) for one in plan.entrusted]
            answers = {name: answer for name, answer, _, _ in longest}
            sent = {one.name: _longest_of(one)[1] for one in plan.packed_within(head)}
            drawn = [{"reports": {name: report}} for name, report in sent.items()]
            characters = sum(own + len("&answer.00=") for *_, own in longest)
            return {"answers": answers}, drawn if plan.drawn else [{"reports": sent}], characters


def _longest_vector(columns: tuple[str, ...], invite: VectorInvite | None) -> tuple[Any, list[Any], int]:
    """The same of several numbers, and of the invitation to report on some, where there is one."""
    d = len(columns)
    told: Any = None
    if invite is not None:
        size, reports = invite.bounds.dimensions, invite.reports
        told = [_DIGITS] * size
        if isinstance(reports, ScalarReports):
            each = _BIT if isinstance(reports.randomiser, DitheredBit) else _DIGITS
            told = {"coordinates": [size - 1] * reports.reported, "each": [each] * reports.reported}
    return {"values": [_DIGITS] * d}, [{"report": told}], d * (_FORM_NUMBER + len(f"&value.{d}="))


def _longest_of(one: Asked | Category) -> tuple[Any, Any, int]:
    """The longest answer to a question, the longest report on it, and the characters of its fields in a form."""
    if isinstance(one, Category):
        return len(one.names), len(one.names), len(str(len(one.names)))
    last = len(one.options) - 1
    match one.study:
        case ShareStudy() | JointStudy():
            oracle = one.study.invite.oracle
            return last, [last] * oracle.size if isinstance(oracle, SubsetSelection) else last, len(str(last))
        case TickStudy():
            ticked = len(f"&answer.00.{last}=on") * one.study.most
            return [last] * one.study.most, 2 * last + 1, ticked
        case MeanStudy() | NumberStudy():
            return _DIGITS, _number(_number_invite(one).randomiser)["report"], _FORM_NUMBER
        case VectorStudy() | KMeansStudy() | RegressionStudy():
            invite = None if isinstance(one.study, RegressionStudy) and one.within is None else one.invite
            asked = invite if isinstance(invite, VectorInvite) else None
            trusted, (local,), characters = _longest_vector(one.coordinates, asked)
            told = invite.grid.cells if isinstance(invite, MapInvite) else local["report"]
            return trusted["values"], told, characters + len(one.coordinates) * len("answer.00")


def _promised(plan: SomePlan, local: PureDP | ApproxDP) -> dict[str, Any]:
    """Each group's whole promise, over all the releases that are planned, and what one release spends of it."""
    return {
        "guarantee": {"trusted": _level(plan.accounts()["trusted"]), "local": _level(local)},
        "each_release": {"trusted": _level(plan.each_release)},
    }
