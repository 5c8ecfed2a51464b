"""The sources of words: reproducible when seeded, fresh when secure, independent when spawned."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, secure, seeded

pytestmark = pytest.mark.system_randomness


def test_the_label_says_which_source_it_is() -> None:
    assert (secure().simulated, secure().label) == (False, "system randomness")
    assert (seeded(1).simulated, seeded(1).label) == (True, "seeded generator, simulation only")
    assert all(child.simulated for child in seeded(1).spawn(2))
    assert not any(child.simulated for child in secure().spawn(2))


@pytest.mark.parametrize("make", [secure, lambda: seeded(3)])
def test_words_are_fresh_writable_64_bit_integers(make: object) -> None:
    rng: Randomness = make()  # type: ignore[operator]
    a, b = rng.words(70_000), rng.words(70_000)
    assert a.dtype == np.uint64
    assert a.shape == (70_000,)
    assert not (a == b).any()
    a >>= np.uint64(1)
    assert rng.words(0).shape == (0,)


@pytest.mark.parametrize("make", [secure, lambda: seeded(3)])
def test_each_bit_is_a_fair_coin(make: object) -> None:
    rng: Randomness = make()  # type: ignore[operator]
    n = 100_000
    words = rng.words(n)
    ones = [int((words >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(64)]
    assert min(stats.binomtest(k, n).pvalue for k in ones) > 1e-9


def test_a_seed_is_reproducible_and_two_seeds_differ() -> None:
    a, b = seeded(5), seeded(5)
    assert (a.words(100) == b.words(100)).all()
    assert (a.words(7) == b.words(7)).all()
    assert not (seeded(5).words(100) == seeded(6).words(100)).any()
    assert (seeded(np.int64(5)).words(9) == seeded(5).words(9)).all()  # type: ignore[arg-type]


def test_the_sequence_does_not_depend_on_how_it_is_cut() -> None:
    cut = seeded(8)
    assert (np.concatenate([cut.words(3), cut.words(4)]) == seeded(8).words(7)).all()


def test_children_are_reproducible_distinct_and_uncorrelated() -> None:
    first = [child.words(20_000) for child in seeded(11).spawn(3)]
    again = [child.words(20_000) for child in seeded(11).spawn(3)]
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    family = [*first, seeded(11).words(20_000)]
    signs = np.array([(w >> np.uint64(63)).astype(float) * 2 - 1 for w in family])
    correlation = signs @ signs.T / 20_000 - np.eye(4)
    assert np.abs(correlation).max() < 6 / np.sqrt(20_000)


def test_spawning_twice_gives_new_children_and_leaves_the_parent_alone() -> None:
    parent = seeded(11)
    (a,), (b,) = parent.spawn(1), parent.spawn(1)
    assert not (a.words(50) == b.words(50)).any()
    assert (parent.words(50) == seeded(11).words(50)).all()


def test_secure_words_come_from_the_system_in_bounded_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = os.urandom

    def counted(n: int) -> bytes:
        asked.append(n)
        return real(n)

    monkeypatch.setattr(os, "urandom", counted)
    rng = secure()
    assert asked == []
    rng.words(100_000)
    assert sum(asked) == 800_000
    assert max(asked) <= 1 << 20
    before = len(asked)
    rng.words(1)
    assert asked[before:] == [8], "nothing is buffered, so a fork cannot repeat its parent"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_repeat_its_parent() -> None:
    rng = secure()
    rng.words(10)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, rng.words(4).tobytes())
        os._exit(0)
    os.waitpid(pid, 0)
    child = np.frombuffer(os.read(read, 32), dtype=np.uint64)
    os.close(read)
    os.close(write)
    assert not (child == rng.words(4)).any()


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", None])
def test_a_bad_seed_is_refused(seed: object) -> None:
    with pytest.raises(InvalidInput, match="`seed` must be a whole number"):
        seeded(seed)  # type: ignore[arg-type]


def test_negative_counts_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`n`"):
        seeded(1).words(-1)
    with pytest.raises(InvalidInput, match="`n`"):
        secure().spawn(-1)
