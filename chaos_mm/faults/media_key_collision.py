"""Media that the engine takes for one another."""

from collections.abc import Generator, Mapping
from typing import Annotated

from chaos_mm.core.engine import MediaKeys
from chaos_mm.core.fault import Param, Seam, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.CACHE, seam=Seam.MEDIA_KEY, selectable=True, carries_content=True)
def media_key_collision(
    keys: MediaKeys,
    rng: Rng,
    *,
    bits: Annotated[int, Param("bits that are left of a key; fewer collide sooner", ge=4, le=16, unit="bits")] = 8,
) -> Generator[Mapping[str, float], None, Mapping[str, float]]:
    """Cut the hash by which media are known again down to a few bits, so that one picture is answered from another's.

    Published relatives: LMCache issue 4086, where pictures were kept under a 16-bit hash, and LMCache 690 and 3301,
    where the key left the picture out. Only the selected canaries' keys are cut. They carry a 128-bit salt of this
    lease, so that no whole key, and thereby no user's, can be equal to one of them; live traffic is refused.

    Among n different pictures some two share a key with probability 1 - exp(-n (n - 1) / 2^(bits + 1)) (the birthday
    bound): 50 % at 5 pictures for 4 bits, at 20 for 8 bits, at 302 for 16. The end restores whole keys and flushes
    what was stored under cut ones; the engine's proof of that is the lease's undo. Reports ``bits`` and ``keys``, how
    many different ones are left.
    """
    try:
        keys.mask(bits, rng.key("salt", 16))
        yield {"bits": float(bits), "keys": float(2**bits)}
    finally:
        restored = keys.restore()
    return restored
