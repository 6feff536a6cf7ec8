"""How an engine's attention and embeddings look, in figures with stated units; torch is imported where it is used.

Formulas over captured queries and keys and over encoder outputs. An adapter hands over those of a bounded sample of
canaries (``measuring.py``), never a user's, and only where it was asked to measure: fused kernels show no weights, so
they are computed once more, which costs.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

__all__ = [
    "MAX_QUERIES",
    "AttentionFigures",
    "alignment",
    "attention",
    "attention_weights",
    "entropies",
    "gaussian_kl",
    "nonfinite",
    "shift_sigma",
]

MAX_QUERIES = 64
"""Queries of one call that are looked at, evenly spaced over it: what bounds the cost of a long prompt."""
_UNIFORM = 1e-3  # a head whose entropy is within this share of ln n tells no token from another
_VARIANCE_FLOOR = 1e-6  # of the mean variance: keeps a constant dimension from dividing by zero


@dataclass(frozen=True)
class AttentionFigures:
    """One attention call. None where the call cannot tell, never 0.

    ``entropy_nats``: mean over heads and queries of -sum p ln p. ``entropy_ratio``: mean of the same over ln n, n being
    the keys that the query sees; 1 is uniform. ``max_share``: mean largest weight. ``vanished_heads``: share of the
    heads that tell no token from another (entropy_ratio above 0.999). ``kl_nats``: see ``gaussian_kl``, mean over the
    key-value heads. ``nonfinite``: NaN and infinities among queries and keys.
    """

    entropy_nats: float | None
    entropy_ratio: float | None
    max_share: float | None
    vanished_heads: float | None
    kl_nats: float | None
    nonfinite: int


def attention(
    q: Any, k: Any, *, causal: bool = True, scale: float | None = None, skip_sink: bool = False
) -> AttentionFigures:
    """Figures of one call from its queries (heads, n, dim) and keys (kv heads, m, dim), any float type, any device.

    ``causal``: the queries are the last n of the m positions and see no later key. ``scale``: 1/sqrt(dim) unless given.
    ``skip_sink``: leave the first key out and make the rest a distribution again, since many models park what they do
    not need on the first token (attention sinks: Xiao et al., 2023). Raises ValueError on shapes that do not fit.
    """
    bad = nonfinite(q) + nonfinite(k)
    weights, visible = attention_weights(q, k, causal=causal, scale=scale)
    if skip_sink:
        weights, visible = weights[..., 1:], visible - 1
        weights = weights / weights.sum(-1, keepdim=True)
    nats, ratio = entropies(weights, visible)
    seen = ratio.isfinite()
    per_head = ratio.where(seen, 0.0).sum(-1) / seen.sum(-1)
    return AttentionFigures(
        entropy_nats=_mean(nats[seen]),
        entropy_ratio=_mean(ratio[seen]),
        max_share=_mean(weights.amax(-1)[seen]),
        vanished_heads=_mean((per_head > 1 - _UNIFORM).float()[per_head.isfinite()]),
        kl_nats=_key_query_kl(q, k) if bad == 0 else None,
        nonfinite=bad,
    )


def attention_weights(q: Any, k: Any, *, causal: bool, scale: float | None = None) -> tuple[Any, Any]:
    """softmax(q k^T scale) as float32 (heads, queries, m), and how many keys each query sees (queries).

    Grouped heads follow one another, as ``repeat_interleave`` lays them; at most MAX_QUERIES queries, evenly spaced.
    """
    import torch

    heads, n, dim = q.shape
    kv_heads, m, key_dim = k.shape
    if dim != key_dim or heads % kv_heads or (causal and n > m):
        raise ValueError(f"queries {tuple(q.shape)} and keys {tuple(k.shape)} do not fit: (heads, tokens, dim)")
    rows = torch.linspace(0, n - 1, min(n, MAX_QUERIES), dtype=torch.float64).round().long()
    keys = k.detach().float().repeat_interleave(heads // kv_heads, 0)
    logits = q.detach()[:, rows.to(q.device)].float() @ keys.mT * (1 / sqrt(dim) if scale is None else scale)
    visible = rows + (m - n) + 1 if causal else torch.full_like(rows, m)
    hidden = torch.arange(m) >= visible[:, None]
    return logits.masked_fill(hidden.to(logits.device), -torch.inf).softmax(-1).cpu(), visible


def entropies(weights: Any, visible: Any) -> tuple[Any, Any]:
    """Shannon entropy of each row in nats and over ln n (Shannon, 1948), both (heads, queries).

    Rows that see fewer than two keys, and rows with values that are no numbers, are NaN: they have nothing to spread.
    """
    import torch

    nats = torch.special.entr(weights).sum(-1)
    most = visible.clamp(min=1).float().log()
    return nats, (nats / most).where(visible > 1, torch.nan)


def _key_query_kl(q: Any, k: Any) -> float | None:
    """Mean over key-value heads of the divergence of its queries' distribution from its keys', in nats a dimension."""
    kv_heads, m, dim = k.shape
    groups = q.detach().float().reshape(kv_heads, -1, dim)
    if groups.shape[1] < 2 or m < 2:
        return None
    kls = [gaussian_kl(group, keys) for group, keys in zip(groups, k.detach().float(), strict=True)]
    return sum(kls) / len(kls)


def gaussian_kl(a: Any, b: Any) -> float:
    """KL(A to B) of the normal distributions with independent dimensions fitted to two samples, in nats a dimension.

    ``a`` (n, dim), ``b`` (m, dim), n and m at least 2. The mean over dimensions of
    ln(s_b / s_a) + (s_a² + (m_a - m_b)²) / (2 s_b²) - 1/2 (Kullback and Leibler, 1951, for two normals). Variances are
    the samples' own, no smaller than 1e-6 of their mean.
    """
    a, b = a.double(), b.double()
    var_a, var_b = a.var(0, correction=0), b.var(0, correction=0)
    floor = max(_VARIANCE_FLOOR * float((var_a + var_b).mean()) / 2, 1e-30)
    var_a, var_b = var_a.clamp(min=floor), var_b.clamp(min=floor)
    gap = (a.mean(0) - b.mean(0)).square()
    return float(((var_b / var_a).log() / 2 + (var_a + gap) / (2 * var_b) - 0.5).mean())


def nonfinite(tensor: Any) -> int:
    """How many elements are NaN or infinite."""
    import torch

    finite = int(torch.isfinite(tensor.detach().float()).sum())
    return int(tensor.numel()) - finite


def shift_sigma(mean: Any, reference_mean: Any, reference_std: float) -> float:
    """Root mean square distance of two mean rows (dim), in standard deviations of the reference's elements.

    The measure of ``embedding_shift``: that fault at s reads s, up to what other pictures differ by anyhow; take that
    from clean runs. Raises ValueError where the standard deviation is not above zero.
    """
    if not reference_std > 0:
        raise ValueError(f"the reference's standard deviation is {reference_std}; it must be above zero")
    return float((mean.double() - reference_mean.double()).square().mean().sqrt()) / reference_std


def alignment(pooled: Any, reference: Any) -> float:
    """Cosine of two pooled embeddings (dim) of the same modality; across modalities a cosine says little.

    (The modality gap of contrastive models: Liang et al., 2022.) NaN where one of the two is all zeros.
    """
    a, b = pooled.double(), reference.double()
    length = float(a.norm() * b.norm())
    return float(a @ b) / length if length > 0 else float("nan")


def _mean(values: Any) -> float | None:
    return float(values.double().mean()) if values.numel() else None
