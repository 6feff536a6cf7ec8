"""The picture before this one, once more."""

from chaos_mm.core.engine import NOT_NOW, Embedding, Role
from chaos_mm.core.fault import Outcome, Target, fault
from chaos_mm.core.rng import Rng


@fault(Target.EMBEDDING, carries_content=True)
def embedding_replay(value: Embedding, rng: Rng, *, place: Role = "projector") -> object:
    """Hand on what the canary before this one had, as a stale encoder cache or a reused buffer does.

    A turn sees the picture, or hears the clip, of the turn before it. Only canaries give and only canaries receive:
    live traffic is refused. The first canary at a place is let pass, as is one whose output has another shape than the
    one before or is the same to the bit, since nothing would change.

    A model without the place refuses the lease when it is put. Reports ``cosine``, the mean over the rows to those
    that belonged there, and ``rows``.
    """
    if not value.at(place):
        return NOT_NOW
    before = value.previous()
    if before is None or before.shape != value.tensor.shape:
        return NOT_NOW
    import torch

    clean = value.tensor.detach()
    new = before.detach().to(device=clean.device, dtype=clean.dtype).clone()
    if new.numel() == 0 or torch.equal(new, clean):
        return NOT_NOW
    value.replace(new)
    cosine = torch.nn.functional.cosine_similarity(clean.float(), new.float(), dim=-1)
    return Outcome(value, {"cosine": float(cosine.mean()), "rows": float(new.shape[0])})
