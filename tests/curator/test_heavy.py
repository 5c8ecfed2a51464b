"""What leaves the curator of records."""

from __future__ import annotations

from collections.abc import Iterator

from hybridp.curator.models import discover_answers
from hybridp.noise import seeded
from hybridp.public.heavy import discovery
from hybridp.public.mechanisms import ApproxDP


def test_records_leave_in_an_order_that_tells_nothing_of_people() -> None:
    """Alphabetically, whoever gave theirs first; each with its own count."""

    class Given:
        def records(self) -> Iterator[list[tuple[str, ...]]]:
            yield [("b",)] * 300 + [("c",)] * 100 + [("a",)] * 200

    found, _ = discover_answers(Given(), 0.999, discovery(ApproxDP(30.0, 1e-5)), rng=seeded(1))  # type: ignore[arg-type]
    assert found[0] == [("a",), ("b",), ("c",)]
    assert [round(n, -2) for n in found[1]] == [200, 300, 100]
