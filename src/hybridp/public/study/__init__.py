"""THE STUDY: questions, trust, promise, declared once as fields with help and check; everything else is derived."""

from hybridp.public.study.fields import Check, Declared, Fields, declared, field
from hybridp.public.study.invited import INVITED, Feature, Points, Records, Regression, Table, needs_invitation
from hybridp.public.study.people import Mixer
from hybridp.public.study.questions import (
    KINDS,
    REPORTED,
    Choice,
    Count,
    Grouped,
    Number,
    Question,
    Vector,
)
from hybridp.public.study.several import ANSWERED, ANSWERED_IN, Form
from hybridp.public.study.study import SCHEMA, Collection, Declaration, Part, People, Promise, Trust

__all__ = [
    "ANSWERED",
    "ANSWERED_IN",
    "INVITED",
    "KINDS",
    "REPORTED",
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
    "needs_invitation",
]
