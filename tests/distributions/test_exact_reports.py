"""Local reports from chosen words: what each word means, by the definition, at ties, at ends and where words run out.

A uniform number is read from the words bit by bit. Here it is put together as one whole number and compared with the
stated probability; the samplers compare its leading bits first and draw more only at a tie.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.chance import replay

from hybridp.errors import InvalidInput
from hybridp.noise import categories, reports, secure, seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, WORD, dithered_bit, k_randomised_response, piecewise


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_a_dithered_bit_is_flipped_exactly_below_its_probability(epsilon: float) -> None:
    bit = dithered_bit(PureDP(epsilon))
    lead, tail = bit.flips >> 32, bit.flips & 0xFFFFFFFF
    for threshold, level in ((0, 0), (0, 1), (LEVELS - 1, LEVELS), (7, 7), (6, 7), (LEVELS // 2, 3)):
        for low, more in ((lead - 1, None), (lead + 1, None), (lead, tail - 1), (lead, tail), (lead, tail + 1)):
            words = [threshold << 32 | low] + ([] if more is None else [more << 32 | 12345])
            (told,) = reports(bit, np.array([level]), rng=replay(words))
            uniform = low << 32 | (0 if more is None else more)
            flipped = uniform < bit.flips
            above = (level > threshold) != flipped
            middle = Fraction(2 * threshold + 1, LEVELS) - 1
            gain = Fraction(WORD, WORD - 2 * bit.flips)
            assert float(told) == pytest.approx(float(middle + (gain if above else -gain)), abs=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_a_piecewise_cell_is_in_the_window_exactly_below_its_probability(epsilon: float) -> None:
    """Sixteen bits choose, and 48 more of the next word at a tie; 48 bits place, without bias and without a hole."""
    window = piecewise(PureDP(epsilon))
    lead, tail = window.inside >> 48, window.inside & (2**48 - 1)
    scale = 2 / (window.slope * LEVELS)
    level, spare = LEVELS // 3, 123 << 16
    places = [0, 2**48 - 1, (level - 1) << 16, level << 16, (level + 1) << 16, spare]
    # The first place whose product leaves a remainder below 2^48 mod width is drawn again.
    limit = 2**48 % window.width
    x = np.arange(1, 2**21, dtype=np.uint64)
    again = x[x * np.uint64(window.width) % np.uint64(2**48) < np.uint64(limit)]
    places += [int(again[0])]
    for choice, more in ((lead - 1, None), (lead + 1, None), (lead, tail - 1), (lead, tail), (lead, tail + 1)):
        for place in places:
            inside = (choice << 48 | (0 if more is None else more)) < window.inside
            words = [choice << 48 | place] + ([] if more is None else [more << 16 | 99])
            if not inside:
                outside = place >> 16
                cell = outside + window.width if outside >= level else outside
            elif place * window.width % 2**48 < limit:
                bits = (window.width - 1).bit_length()
                words.append(5 << (64 - bits))
                cell = level + 5
            else:
                cell = level + (place * window.width >> 48)
            (told,) = reports(window, np.array([level]), rng=replay(words))
            assert (float(told) + window.offset * scale + 1) / scale == pytest.approx(cell, abs=1e-2)


def test_randomised_response_says_the_truth_exactly_below_its_probability() -> None:
    response = k_randomised_response(PureDP(1.0), 5)
    for value in range(5):
        for other in range(4):
            for word in (0, response.keep - 1, response.keep, WORD - 1):
                told = categories(response, np.array([value]), rng=replay([word, other << 62]))
                others = [c for c in range(5) if c != value]
                assert int(told[0]) == (value if word < response.keep else others[other])


def test_made_up_data_never_comes_from_words_that_protect_people() -> None:
    with pytest.raises(ValueError, match="seeded generator"):
        synthetic_data_generator(secure())
    assert 0 <= synthetic_data_generator(seeded(1)).random() < 1


@pytest.mark.parametrize("value", [-1, 3, 9])
def test_a_response_among_k_is_about_one_of_them(value: int) -> None:
    """What is none of them nobody else would ever tell: it is refused before a word is drawn, whoever else is asked."""
    response = k_randomised_response(PureDP(1.0), 3)
    assert categories(response, np.array([2], dtype=np.int64), rng=seeded(1)).max() <= 2  # the control
    with pytest.raises(InvalidInput, match=r"`values` must be a row of whole numbers from 0 to 2\. Got something else"):
        categories(response, np.array([0, value], dtype=np.int64), rng=replay([]))
