"""What the collection service must know of a study, beside its questions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from hybridp.public.study.fields import Fields, at_least, field
from hybridp.public.study.question import short

__all__ = ["Collection"]

_GAP = 7 * 86_400


@dataclass(frozen=True, kw_only=True)
class Collection(Fields):
    """What the collection service must know beside the questions."""

    _what: ClassVar[str] = "collection"

    purpose: str = field("", help="What the answers are for, as participants read it.", check=short(500))
    contact: str = field(
        "", help="Where participants reach those who ask, such as an e-mail address.", check=short(200)
    )
    opens: datetime | None = field(None, help="When the first answer is taken. Default: at once.")
    closes: datetime | None = field(None, help="When the last answer is taken. Default: when it is closed by hand.")
    min_batch: int = field(
        20,
        help="Nothing is released before so many people have answered; in a study of two phases, so many in each.",
        check=at_least(2, 1e10),
    )
    time_precision: int = field(
        3600, help="Reports carry their time rounded down to so many seconds.", check=at_least(1, _GAP)
    )
    by_invitation: bool = field(False, help="Only people with a single-use link may answer.")
    releases: int = field(
        1, help="How many releases the trusted group's budget pays for; each keeps the promise.", check=at_least(1, 1e6)
    )
    delete_raw_after_release: bool = field(True, help="Trusted answers are deleted with the last release.")
    delete_by: datetime | None = field(
        None, help="When trusted answers are deleted at the latest. Default: 90 days after the closing."
    )

    @property
    def label(self) -> str:
        return "collection."

    def check(self) -> None:
        if self.opens is not None and self.closes is not None:
            rule = f"must be after opens ({self.opens.isoformat()})"
            self.must(self.opens < self.closes, "closes", rule, self.closes.isoformat())
