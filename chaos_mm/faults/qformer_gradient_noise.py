"""Noise on the gradients of a Q-Former that is fine-tuned online."""

from math import exp
from typing import Annotated

from chaos_mm.core.engine import NOT_NOW, Gradient, Role
from chaos_mm.core.fault import Outcome, Param, Target, fault
from chaos_mm.core.rng import Rng
from chaos_mm.tensors import generator


@fault(
    Target.GRADIENT,
    dose="sigma",
    presets={1: {"sigma": 0.1}, 2: {"sigma": 0.5}, 3: {"sigma": 1.0}, 4: {"sigma": 4.0}, 5: {"sigma": 16.0}},
)
def qformer_gradient_noise(
    value: Gradient,
    rng: Rng,
    *,
    sigma: Annotated[
        float, Param("standard deviation of the noise at step 0", ge=0, le=64, unit="of the gradient's own std")
    ] = 0.5,
    damping: Annotated[
        float, Param("decay of the noise: times exp(-damping * t) at step t; 0: none", ge=0, le=1, unit="a step")
    ] = 0.0,
    place: Role = "qformer",
) -> object:
    """Add Gaussian noise to what flows back, as a lossy all-reduce, too small a batch or a poisoned sample does.

    For jobs that fine-tune while they serve. The noise has ``sigma`` exp(-``damping`` t) times the standard deviation
    of the gradient it is added to, t being optimiser steps since the lease began; ``damping`` 0.02 halves the noise
    every 35 steps. Each module and step has its own draw. The lease's end stops the noise and takes no step back:
    weights that learnt from it keep what they learnt, so restore a checkpoint where that matters.

    A model without the place refuses the lease when it is put; a gradient of zeros alone is let pass. Reports
    ``noise_sigma`` (the factor in force), ``rms_sigma`` (measured) and ``step``. Raises ValueError for a gradient that
    is not finite.
    """
    factor = sigma * exp(-damping * value.step)
    if factor == 0 or value.tensor.numel() == 0 or not value.at(place):
        return NOT_NOW
    import torch

    clean = value.tensor.detach()
    std = float(clean.float().std(correction=0))
    if not std < float("inf"):
        raise ValueError(f"qformer_gradient_noise: the gradient at {value.module!r} is not finite")
    if std == 0:
        return NOT_NOW
    # The step is in the key: one application of a lease lasts over many, and each needs a draw of its own.
    draws = generator(rng, f"{value.module} {value.step}", "cpu")
    noise = torch.randn(clean.shape, generator=draws).to(clean.device)
    new = (clean.float() + factor * std * noise).to(clean.dtype)
    value.replace(new)
    measured = float((new.float() - clean.float()).square().mean().sqrt()) / std
    return Outcome(value, {"noise_sigma": factor, "rms_sigma": measured, "step": float(value.step)})
