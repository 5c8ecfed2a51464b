"""The form of a new study, made from the fields that a study declares: their names, help, choices and defaults.

>>> [one.name for one in fieldsets("mean")[1][1]][:3]
['question.lower', 'question.upper', 'question.sd']
>>> stated = declared_by({"kind": "mean", "title": "Sleep", "question.lower": "0", "promise.epsilon": "1"})
>>> stated["promise"], stated["questions"]
({'epsilon': 1.0}, [{'kind': 'number', 'lower': 0.0}])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from hybridp.errors import InvalidInput
from hybridp.public.study import Collection, Declaration, Declared, Fields, Grouped, Mixer, People, Promise, declared
from hybridp.public.study.question import GROUPED
from hybridp.service.plans import KINDS

__all__ = ["NAMES", "FormField", "declared_by", "fieldsets"]

NAMES = {
    "mean": "Mean of a number",
    "number": "Statistics of a number",
    "choice": "Choice among options",
    "count": "Count",
    "personal-mean": "Mean, everyone their own ε",
    "vector-mean": "Mean of several numbers",
    "heavy-hitters": "Heavy hitters",
    "regression": "Regression",
    "points": "Centres of K groups",
}

_READ = ("text", "unit")
_PLACES = ("at", "below", "above", "edges")
_COLLECTED = {
    "mean": ("lower", "upper", "sd", "step"),
    "number": ("lower", "upper", "statistics", *_PLACES, "form", "step"),
    "choice": ("options", "several", "other"),
    "count": ("value",),
    "personal-mean": ("lower", "upper", "sd", "step"),
    "vector-mean": ("columns", "lower", "upper"),
    "heavy-hitters": ("columns", "head"),
    "regression": ("target", "on", "lower", "upper", "model"),
    "points": ("columns", "lower", "upper", "clusters"),
}
_PROMISED = {
    **dict.fromkeys(("mean", "number", "choice", "count"), ("epsilon", "delta", "trusted_epsilon")),
    "personal-mean": ("allowed_epsilons",),
    **dict.fromkeys(("vector-mean", "regression", "points"), ("epsilon", "delta", "trusted_epsilon")),
    "heavy-hitters": ("epsilon", "delta"),
}
_KEPT = ("min_batch", "releases", "delete_raw_after_release", "delete_by")
_WHEN = ("by_invitation", "opens", "closes", "time_precision")
_MIXER = ("batch", "url", "run_by", "key", "delta", "epsilon", "cap")
_MIXABLE = ("mean",)
"""The kinds whose reports may come through a mixer."""
_GROUPED = {"mean": ("by", "categories", "by_private", "least", "compare", "joint"),
            "choice": ("by", "categories", "by_private", "least", "compare")}  # fmt: skip
"""The kinds whose answers may be told by group, and the fields that say by which."""
_OF_TABLES = {"column", "report", "missing", "weight", "statistics", "publish", "clipped_share", "guessed"}
"""Fields of questions that a page has no use for."""

_SUGGESTED: dict[str, dict[str, str]] = {
    "": {"question.name": "answer", "collection.by_invitation": "true", "question.least": ""},
    "mean": {"question.lower": "0", "promise.epsilon": "1"},
    "number": {
        "question.lower": "0",
        "promise.epsilon": "1",
        "question.statistics": "mean, quantiles",
        "question.at": "0.25, 0.5, 0.75",
    },
    "choice": {"promise.epsilon": "1"},
    "count": {"question.value": "yes", "promise.epsilon": "1"},
    "personal-mean": {"question.lower": "0", "promise.allowed_epsilons": "0.2, 0.5, 1, 2"},
    "vector-mean": {"question.lower": "0", "promise.epsilon": "1"},
    "heavy-hitters": {"question.columns": "query, url", "promise.epsilon": "4", "promise.delta": "1e-6"},
    "regression": {"promise.epsilon": "1"},
    "points": {"question.columns": "x, y", "promise.epsilon": "2"},
}
"""What a new form holds already, beside the declared defaults."""
_ASKER = {"title", "asked_by", "collection.purpose", "collection.contact"}
_NEEDED = _ASKER | {"promise.epsilon", "promise.allowed_epsilons", "question.options"}
_ONCE = ("personal-mean", "heavy-hitters", "regression", "points")
"""The kinds that are released once."""
_COUNTED = {"regression": {"people.local"}, "points": {"people.trusted", "people.local"}}
"""The kinds whose questions follow from how many people are expected."""


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
    question = KINDS[kind]
    shown = {"name", *_READ, *_COLLECTED[kind]}
    by_group = GROUPED if issubclass(question, Grouped) else frozenset[str]()
    rest = [one.name for one in declared(question) if one.name not in shown | _OF_TABLES | by_group]
    personal = kind == "personal-mean"
    if kind in ("mean", "personal-mean", "choice"):
        rest = [name for name in rest if name not in (*_PLACES, "form")]
    rest += ["joint"] if kind in ("number", "choice") else []
    if personal:
        rest = [name for name in rest if name not in ("local", "noise", "local_sd", "gap", "trusted_weight")]
    single = (*_KEPT[:1], *_KEPT[2:]) if kind in _ONCE else _KEPT
    return [
        ("What participants read", [
            *_fields(kind, Declaration, "", ("title", "asked_by")),
            *_fields(kind, Collection, "collection.", ("purpose", "contact")),
            *_fields(kind, question, "question.", _READ)]),
        ("What is collected", [*_fields(kind, question, "question.", _COLLECTED[kind]),
                               *_fields(kind, question, "question.", ("name",))]),
        ("What is promised", [*_fields(kind, Promise, "promise.", _PROMISED[kind]),
                              *_fields(kind, Collection, "collection.", single)]),
        ("Who, and when", [*_fields(kind, Collection, "collection.", _WHEN),
                           *_fields(kind, People, "people.", ("trusted", "local"))]),
        *([] if kind not in _GROUPED else [("By group, if the answer is told so", [
            *_fields(kind, question, "question.", _GROUPED[kind])])]),
        *([] if kind not in _MIXABLE else [("A mixer between, if there is one", [
            *(replace(one, required=False, value="") for one in _fields(kind, Mixer, "mixer.", _MIXER)),
            *_fields(kind, People, "people.", ("shuffled",))])]),
        ("How the estimate is made", [
            *_fields(kind, question, "question.", rest), *_fields(kind, Declaration, "", ("level",))]),
    ]  # fmt: skip


def _fields(kind: str, of: type[Fields], where: str, names: Iterable[str]) -> list[FormField]:
    known = {one.name: one for one in declared(of)}
    return [_field(kind, known[name], where) for name in names]


def _field(kind: str, one: Declared, where: str) -> FormField:
    name = f"{where}{one.name}"
    value = _SUGGESTED[kind].get(name, _SUGGESTED[""].get(name, _written(one)))
    needed = one.required or name in _NEEDED or name in _COUNTED.get(kind, ())
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
        **({"mixer": Mixer} if kind in _MIXABLE else {}),
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
        found[place][field] = _read(name, known[field], text.strip())
    own, question = found.pop(""), found.pop("question")
    return {**own, **{place: given for place, given in found.items() if given}, "questions": [question]}


def _read(name: str, one: Declared, text: str) -> Any:
    """A field's text in its form; what it may be is the declaration's to say."""
    try:
        match one.form:
            case "number":
                return float(text)
            case "whole":
                return int(text)
            case "yes/no":
                return text.lower() in ("on", "true", "1", "yes")
            case "texts":
                return [part.strip() for part in text.split(",") if part.strip()]
            case "numbers":
                return [float(part) for part in text.split(",") if part.strip()]
            case "moment":
                return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        forms = {"number": "a number", "whole": "a whole number", "numbers": "numbers, separated by commas"}
        form = forms.get(one.form, "a date and a time")
        raise InvalidInput(f"`{name}` must be {form}. Got something else.") from None
    return text
