"""Random numbers by purpose: reproducible, uniform, and unrelated across devices, rounds and purposes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, random_words, rng_for, stream_keys

N_WORDS = 20_000


def unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (words >> np.uint64(11)).astype(np.float64) / 2.0**53


def stream(
    seed: int = 0, purpose: Purpose = Purpose.DROPOUT, device: int = 0, round_index: int = 0
) -> NDArray[np.float64]:
    return unit(random_words(stream_keys([seed], purpose, [device], [round_index]), N_WORDS)[0])


def test_the_same_question_has_the_same_answer() -> None:
    assert np.array_equal(rng_for(3, Purpose.DATA, 5, 7).random(10), rng_for(3, Purpose.DATA, 5, 7).random(10))
    assert np.array_equal(stream(3, Purpose.DROPOUT, 5, 7), stream(3, Purpose.DROPOUT, 5, 7))


def test_every_argument_gives_another_generator() -> None:
    asked = list(itertools.product((0, 1), (Purpose.DATA, Purpose.MODULE), (0, 1, 2), (0, 1, 2)))
    draws = {float(rng_for(*arguments).random()) for arguments in asked}
    keys = {int(stream_keys([seed], purpose, [device], [at])[0]) for seed, purpose, device, at in asked}

    assert len(draws) == len(asked)
    assert len(keys) == len(asked)


def test_purposes_keep_their_numbers() -> None:
    numbers = {
        "MODEL_INIT": 1, "BATCH_ORDER": 2, "DROPOUT": 3, "DATA": 4,
        "PARTITION": 5, "FAILURES": 6, "MODULE": 7, "COMPUTE_SPEED": 8,
    }  # fmt: skip

    assert {name: int(Purpose[name]) for name in numbers} == numbers


def test_a_device_draws_the_same_words_alone_as_among_many() -> None:
    keys = stream_keys(7, Purpose.BATCH_ORDER, np.arange(100), 3)
    together = random_words(keys, 9)

    for device in (0, 41, 99):
        alone = random_words(stream_keys([7], Purpose.BATCH_ORDER, [device], [3]), 9)
        assert np.array_equal(alone[0], together[device])


def test_words_can_be_asked_for_from_the_middle() -> None:
    keys = stream_keys(1, Purpose.DROPOUT, [4], 2)

    assert np.array_equal(random_words(keys, 30)[:, 10:], random_words(keys, 20, first=10))


def test_words_are_uniform_in_every_bit_and_bin() -> None:
    words = random_words(stream_keys(0, Purpose.DROPOUT, [3], 7), N_WORDS)[0]
    counts, _ = np.histogram(unit(words), bins=50, range=(0, 1))
    bits = [(words >> np.uint64(bit) & np.uint64(1)).mean() for bit in range(64)]
    chi_squared = float(((counts - N_WORDS / 50) ** 2 / (N_WORDS / 50)).sum())

    assert chi_squared < 95  # 49 degrees of freedom: one seed in ten thousand is above
    assert np.abs(np.array(bits) - 0.5).max() < 5 * 0.5 / N_WORDS**0.5


@pytest.mark.parametrize(
    "other",
    [
        {"device": 1},
        {"device": 2**20},
        {"round_index": 1},
        {"seed": 1},
        {"purpose": Purpose.BATCH_ORDER},
        {"device": 1, "round_index": 1},
    ],
    ids=str,
)
def test_streams_of_other_devices_rounds_seeds_and_purposes_are_unrelated(other: dict[str, int]) -> None:
    purpose = Purpose(other.get("purpose", Purpose.DROPOUT))
    mine = stream()
    theirs = stream(other.get("seed", 0), purpose, other.get("device", 0), other.get("round_index", 0))

    for lag in (0, 1, 2):
        correlation = np.corrcoef(mine[: N_WORDS - lag], theirs[lag:])[0, 1]
        assert abs(correlation) < 5 / N_WORDS**0.5


def test_first_words_across_devices_are_uniform_too() -> None:
    keys = stream_keys(0, Purpose.DROPOUT, np.arange(N_WORDS), 0)
    firsts = unit(random_words(keys, 1)[:, 0])
    counts, _ = np.histogram(firsts, bins=50, range=(0, 1))

    assert float(((counts - N_WORDS / 50) ** 2 / (N_WORDS / 50)).sum()) < 95
    assert abs(np.corrcoef(firsts[:-1], firsts[1:])[0, 1]) < 5 / N_WORDS**0.5


def test_swapping_device_and_round_gives_another_stream() -> None:
    a = stream_keys([0], Purpose.DATA, [1], [2])
    b = stream_keys([0], Purpose.DATA, [2], [1])

    assert a[0] != b[0]
