"""Whom people may trust beside the curator: a mixer, as a study declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from hybridp.public.study.fields import Check, Fields, at_least, field, positive
from hybridp.public.study.question import named, short

__all__ = ["Mixer"]


@dataclass(frozen=True, kw_only=True)
class Mixer(Fields):
    """A third kind of trust: reports go through a mixer, who does not collude with whoever collects them."""

    _what: ClassVar[str] = "the mixer"

    batch: int = field(
        help="The fewest reports of a batch. Public: in a smaller one only a report's own epsilon holds.",
        check=at_least(2, 1e8),
    )
    epsilon: float | None = field(
        None,
        help="What a report keeps by itself. Default: the most with which a batch keeps the promise.",
        check=positive,
        option="shuffled-epsilon",
    )
    cap: float = field(
        8.0,
        help="The most that epsilon may be: what is left to people if mixer and collector collude.",
        check=Check("must be above 0 and at most 16", lambda x: 0 < x <= 16),
        option="shuffled-cap",
    )
    delta: float | None = field(
        None,
        help="Of a mixed batch's promise. Default: that of the promise.",
        check=Check("must be at least 1e-15 and less than 0.1", lambda x: 1e-15 <= x < 0.1),
        option="shuffled-delta",
    )
    url: str | None = field(
        None,
        help="Where the mixer is reached by people's devices, such as https://mixer.example.",
        check=named,
        option="",
    )
    key: str | None = field(
        None, help="The mixer's public key, as `hybridp mix key` prints it.", check=named, option=""
    )
    run_by: str = field(
        "", help="Who runs the mixer, as participants read it: not those who ask.", check=short(200), option=""
    )

    @property
    def label(self) -> str:
        return "mixer."

    def check(self) -> None:
        if self.url is not None:
            parts = urlsplit(self.url)
            plain = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
            quiet = not any(letter in self.url for letter in " ;,'\"<>\\") and "@" not in parts.netloc
            self.must(bool(plain and quiet), "url", "must be an http or https address, such as https://mixer.example",
                      "something else")  # fmt: skip
