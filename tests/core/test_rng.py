"""Draws: keyed by request, uniform, independent of each other and of the global generators."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from chaos_mm.core.rng import Rng


def _stream(request_id: str = "q", part: str = "0", seed: int = 1) -> Rng:
    return Rng.derive(seed, request_id, part, "image_noise")


def test_same_key_same_draws_whatever_the_thread():
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: [_stream(f"q{n % 4}").random() for _ in range(3)], range(64)))
    assert all(made[n] == made[n % 4] for n in range(64))
    assert len({tuple(m) for m in made}) == 4


def test_different_fields_differ_and_cannot_be_shifted_into_each_other():
    keys = {(s, q, p): Rng.derive(s, q, p, "f").key("k") for s in (0, 1) for q in ("a", "ab") for p in ("b", "bb")}
    assert len(set(keys.values())) == 8
    assert Rng.derive(0, "a", "bc", "f").key("k") != Rng.derive(0, "ab", "c", "f").key("k")


def test_random_is_uniform():
    stream = _stream()
    draws = [stream.random() for _ in range(20_000)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-4


def test_bytes_are_uniform_and_labels_are_independent():
    stream = _stream()
    one, two = (np.frombuffer(stream.bytes(1 << 18, label), np.uint8) for label in ("a", "b"))
    assert stats.chisquare(np.bincount(one, minlength=256)).pvalue > 1e-4
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.01
    assert stream.bytes(64, "a") == one[:64].tobytes()


def test_bytes_are_the_aes_ctr_keystream_of_the_standard():
    # NIST SP 800-38A F.5.1 with a zero counter block cannot be keyed from here; AES-128 of the zero block under the
    # key is what CTR must start with, by an independent call.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = _stream()
    block = Cipher(algorithms.AES(stream.key("bytes")), modes.ECB()).encryptor().update(bytes(16))
    assert stream.bytes(16) == block


@given(st.integers(-1000, 1000), st.integers(1, 1000))
def test_integer_stays_in_range(low: int, width: int):
    stream = _stream(str(low))
    assert all(low <= stream.integer(low, low + width) < low + width for _ in range(5))


def test_integer_refuses_an_empty_range():
    with pytest.raises(ValueError, match="high must be above low"):
        _stream().integer(3, 3)


def test_global_generators_are_not_touched():
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    stream = _stream()
    stream.random(), stream.bytes(100), stream.choice([1, 2, 3])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
