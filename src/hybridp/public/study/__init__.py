"""THE STUDY: questions, trust, promise, declared once as fields with help and check; everything else is derived."""

from hybridp.public.study.fields import Check, Declared, Fields, declared, field
from hybridp.public.study.invited import Feature, Points, Records, Regression, Table, Vector
from hybridp.public.study.people import Mixer
from hybridp.public.study.questions import KINDS, Choice, Count, Grouped, Number, Question
from hybridp.public.study.study import (
    ANSWERED,
    ANSWERED_IN,
    SCHEMA,
    Collection,
    Declaration,
    Form,
    Part,
    People,
    Promise,
    Trust,
)

__all__ = [
    "ANSWERED",
    "ANSWERED_IN",
    "KINDS",
    "SCHEMA",
    "Check",
    "Choice",
    "Collection",
    "Count",
    "Declaration",
    "Declared",
    "Feature",
    "Fields",
    "Form",
    "Grouped",
    "Mixer",
    "Number",
    "Part",
    "People",
    "Points",
    "Promise",
    "Question",
    "Records",
    "Regression",
    "Table",
    "Trust",
    "Vector",
    "declared",
    "field",
]
