"""The frozen split of the 10,000 four-digit codes: a tenth, by a multiplicative hash, is never trained on."""

import random

Code = tuple[int, int, int, int]


def is_held_out(code: Code) -> bool:
    """Whether ``code`` belongs to the held-out tenth (Knuth's multiplicative hash of its value, below 0.1)."""
    value = int("".join(map(str, code)))
    return (value * 2654435761 % 2**32) / 2**32 < 0.10


def draw_code(rng: random.Random, held_out: bool) -> Code:
    """A random code from the wanted side of the split."""
    while True:
        code = (rng.randrange(10), rng.randrange(10), rng.randrange(10), rng.randrange(10))
        if is_held_out(code) == held_out:
            return code


def draw_other(rng: random.Random, code: Code, held_out: bool) -> Code:
    """A different code of the same side: in 44 % of draws one or two digits are redrawn, else all are."""
    near = rng.random()
    for _ in range(60 if near < 0.44 else 0):
        other = list(code)
        for place in rng.sample(range(4), 1 if near < 0.24 else 2):
            other[place] = rng.randrange(10)
        candidate = (other[0], other[1], other[2], other[3])
        if candidate != code and is_held_out(candidate) == held_out:
            return candidate
    while (candidate := draw_code(rng, held_out)) == code:
        pass
    return candidate
