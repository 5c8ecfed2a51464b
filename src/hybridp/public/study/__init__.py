"""THE STUDY: questions, trust, promise, declared once as fields with help and check; everything else is derived."""

from hybridp.public.study.fields import Check, Declared, Fields, declared, field
from hybridp.public.study.questions import KINDS, Choice, Feature, Number, Points, Question, Records, Table, Vector
from hybridp.public.study.study import SCHEMA, Collection, Declaration, Part, People, Promise, Trust

__all__ = [
    "KINDS",
    "SCHEMA",
    "Check",
    "Choice",
    "Collection",
    "Declaration",
    "Declared",
    "Feature",
    "Fields",
    "Number",
    "Part",
    "People",
    "Points",
    "Promise",
    "Question",
    "Records",
    "Table",
    "Trust",
    "Vector",
    "declared",
    "field",
]
