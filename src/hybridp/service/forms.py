"""The form of a new study, made from the fields that a study declares: their names, help, choices and defaults.

>>> [one.name for one in fieldsets("mean")[1][1]][:3]
['question.lower', 'question.upper', 'question.sd']
>>> stated = declared_by({"kind": "mean", "title": "Sleep", "question.lower": "0", "promise.epsilon": "1"})
>>> stated["promise"], stated["questions"]
({'epsilon': 1.0}, [{'kind': 'number', 'lower': 0.0}])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from hybridp.errors import InvalidInput
from hybridp.public.study import KINDS as QUESTIONS
from hybridp.public.study import Collection, Declaration, Declared, Fields, Grouped, Mixer, People, Promise, declared
from hybridp.public.study.basics import GROUPED

__all__ = ["KINDS", "NAMES", "FormField", "declared_by", "fieldsets"]

_READ = ("text", "unit")
_PLACES = ("at", "below", "above", "edges")
_RANGE = ("lower", "upper", "sd", "step")
_PROMISED = ("epsilon", "delta", "trusted_epsilon")
_KEPT = ("min_batch", "releases", "delete_raw_after_release", "delete_by")
_WHEN = ("by_invitation", "opens", "closes", "time_precision")
_MIXER = ("batch", "url", "run_by", "key", "delta", "epsilon", "cap")
_GROUPED = ("by", "categories", "by_private", "least", "compare")
_OF_TABLES = {"column", "report", "missing", "weight", "statistics", "publish", "clipped_share", "guessed"}
"""Fields of questions that a page has no use for."""
_ASKER = {"title", "asked_by", "collection.purpose", "collection.contact"}
_NEEDED = _ASKER | {"promise.epsilon", "promise.allowed_epsilons", "question.options"}
_SUGGESTED = {
    "question.name": "answer",
    "collection.by_invitation": "true",
    "question.least": "",
    "promise.epsilon": "1",
}
"""What a new form holds already, beside the declared defaults."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a form of this kind shows, and what it holds already."""

    name: str
    question: str
    collected: tuple[str, ...]
    suggested: Mapping[str, str] = field(default_factory=dict)
    promised: tuple[str, ...] = _PROMISED
    hidden: tuple[str, ...] = ()
    """Fields of the question that are for other kinds."""
    later: tuple[str, ...] = ()
    """Fields by group that stand among those which most studies leave alone."""
    grouped: tuple[str, ...] = ()
    """Where answers may be told by group: the fields that say by which."""
    counted: tuple[str, ...] = ()
    """Where questions follow from how many people are expected: the groups that must be stated."""
    mixes: bool = False
    once: bool = False


_FORMS = {
    "mean": _Kind("Mean of a number", "number", _RANGE, {"question.lower": "0"}, hidden=(*_PLACES, "form"),
                  grouped=(*_GROUPED, "joint"), mixes=True),
    "number": _Kind("Statistics of a number", "number", ("lower", "upper", "statistics", *_PLACES, "form", "step"),
                    {"question.lower": "0", "question.statistics": "mean, quantiles",
                     "question.at": "0.25, 0.5, 0.75"}, later=("joint",)),
    "choice": _Kind("Choice among options", "choice", ("options", "several", "other"), hidden=(*_PLACES, "form"),
                    later=("joint",), grouped=_GROUPED),
    "count": _Kind("Count", "count", ("value",), {"question.value": "yes"}),
    "personal-mean": _Kind("Mean, everyone their own ε", "number", _RANGE,
                           {"question.lower": "0", "promise.allowed_epsilons": "0.2, 0.5, 1, 2"},
                           promised=("allowed_epsilons",), once=True,
                           hidden=(*_PLACES, "form", "local", "noise", "local_sd", "gap", "trusted_weight")),
    "vector-mean": _Kind("Mean of several numbers", "vector", ("columns", "lower", "upper"), {"question.lower": "0"}),
    "heavy-hitters": _Kind("Heavy hitters", "records", ("columns", "head"),
                           {"question.columns": "query, url", "promise.epsilon": "4", "promise.delta": "1e-6"},
                           promised=("epsilon", "delta"), once=True),
    "regression": _Kind("Regression", "regression", ("target", "on", "lower", "upper", "model"), once=True,
                        counted=("local",)),
    "points": _Kind("Centres of K groups", "points", ("columns", "lower", "upper", "clusters"),
                    {"question.columns": "x, y", "promise.epsilon": "2"}, counted=("trusted", "local"), once=True),
}  # fmt: skip
NAMES = {kind: form.name for kind, form in _FORMS.items()}
KINDS = {kind: QUESTIONS[form.question] for kind, form in _FORMS.items()}
"""What a page collects that a form can state, and the question that asks for it. A table is stated in a study file."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field as a page shows it; `name` is its place in the declaration."""

    name: str
    label: str
    hint: str
    type: str
    value: str
    required: bool
    choices: tuple[tuple[str, str], ...]


def fieldsets(kind: str) -> list[tuple[str, list[FormField]]]:
    """The form of a kind: a legend and its fields, in order; the last set holds what most studies leave alone."""
    question, form = KINDS[kind], _FORMS[kind]
    shown = {"name", *_READ, *form.collected, *form.hidden} | _OF_TABLES
    by_group = GROUPED if issubclass(question, Grouped) else frozenset[str]()
    rest = [one.name for one in declared(question) if one.name not in shown | by_group]
    single = (*_KEPT[:1], *_KEPT[2:]) if form.once else _KEPT
    return [
        ("What participants read", [
            *_fields(kind, Declaration, "", ("title", "asked_by")),
            *_fields(kind, Collection, "collection.", ("purpose", "contact")),
            *_fields(kind, question, "question.", _READ)]),
        ("What is collected", [*_fields(kind, question, "question.", form.collected),
                               *_fields(kind, question, "question.", ("name",))]),
        ("What is promised", [*_fields(kind, Promise, "promise.", form.promised),
                              *_fields(kind, Collection, "collection.", single)]),
        ("Who, and when", [*_fields(kind, Collection, "collection.", _WHEN),
                           *_fields(kind, People, "people.", ("trusted", "local"))]),
        *([] if not form.grouped else [("By group, if the answer is told so", [
            *_fields(kind, question, "question.", form.grouped)])]),
        *([] if not form.mixes else [("A mixer between, if there is one", [
            *(replace(one, required=False, value="") for one in _fields(kind, Mixer, "mixer.", _MIXER)),
            *_fields(kind, People, "people.", ("shuffled",))])]),
        ("How the estimate is made", [
            *_fields(kind, question, "question.", (*rest, *form.later)), *_fields(kind, Declaration, "", ("level",))]),
    ]  # fmt: skip


def _fields(kind: str, of: type[Fields], where: str, names: Iterable[str]) -> list[FormField]:
    known = {one.name: one for one in declared(of)}
    return [_field(kind, known[name], where) for name in names]


def _field(kind: str, one: Declared, where: str) -> FormField:
    name = f"{where}{one.name}"
    value = _FORMS[kind].suggested.get(name, _SUGGESTED.get(name, _written(one)))
    needed = one.required or name in _NEEDED or (where == "people." and one.name in _FORMS[kind].counted)
    listed = {"texts": " Separated by commas.", "numbers": " Separated by commas.", "moment": " UTC."}
    choices = () if one.form == "texts" else tuple((word, word) for word in one.choices)
    if choices and one.optional:
        choices = (("", "the default"), *choices)
    if one.form == "yes/no":
        choices = (("true", "yes"), ("false", "no"))
    kinds = {"whole": "number", "moment": "datetime-local"}
    label, hint = one.name.replace("_", " ").capitalize(), one.help + listed.get(one.form, "")
    if one.form == "texts" and one.choices:
        hint += f" Of {', '.join(one.choices)}."
    return FormField(name, label, hint, kinds.get(one.form, "text"), value, needed, choices)


def _written(one: Declared) -> str:
    """A default as it stands in a form."""
    if one.default is None or one.default == ():
        return ""
    if isinstance(one.default, bool):
        return str(one.default).lower()
    if isinstance(one.default, tuple):
        return ", ".join(map(str, one.default))
    return f"{one.default:g}" if isinstance(one.default, float) else str(one.default)


def declared_by(form: Mapping[str, str]) -> dict[str, Any]:
    """A study as plain data from a form's fields: empty ones are left to their defaults."""
    kind = form.get("kind", "mean")
    if kind not in KINDS:
        raise InvalidInput(f"`kind` must be one of {', '.join(KINDS)}. Got another.")
    places: dict[str, type[Fields]] = {
        "": Declaration, "promise": Promise, "collection": Collection, "people": People, "question": KINDS[kind],
        **({"mixer": Mixer} if _FORMS[kind].mixes else {}),
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {place: {} for place in places}
    found["question"]["kind"] = KINDS[kind].kind
    for name, text in form.items():
        place, _, field = name.rpartition(".")
        if name in ("kind", "form_token") or not text.strip():
            continue
        known = {one.name: one for one in declared(places[place])} if place in places else {}
        if field not in known:
            raise InvalidInput(f"`{name[:80]}` must be left out: a study of this kind has no such field.")
        found[place][field] = _read(known[field], text.strip())
    own, question = found.pop(""), found.pop("question")
    return {**own, **{place: given for place, given in found.items() if given}, "questions": [question]}


_READERS: dict[str, Callable[[str], Any]] = {
    "number": float,
    "whole": int,
    "yes/no": lambda text: text.lower() in ("on", "true", "1", "yes"),
    "texts": lambda text: [part.strip() for part in text.split(",") if part.strip()],
    "numbers": lambda text: [float(part) for part in text.split(",") if part.strip()],
    "moment": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
}


def _read(one: Declared, text: str) -> Any:
    """A field's text in its form, where it has it; what it may be is the declaration's to say."""
    try:
        return _READERS.get(one.form, str)(text)
    except ValueError:
        return text
