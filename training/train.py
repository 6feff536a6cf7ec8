"""Train the demo model from scratch: ``python -m training.train`` (one seeded run; see assets/PROVENANCE.md).

Losses: cross-entropy on the answers, plus heads that exist in training only: digit and slot of every vision and audio
token, the digits read from the Q-Formers' first four queries and the colour from the fifth, and "is slot i equal?" from
the decoder's state at the first four audio tokens (which makes agreement learnable).
"""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from chaos_mm.target import tokens
from chaos_mm.target.network import DIM, OmniModel
from training import recipe
from training.batches import Batch, Batches
from training.exact_match import validation_scores
from training.prompts import Prompt
from training.speech import SpeechBank

BANK = Path("training/data/speech_bank.npz")
CHECKPOINT = Path("training/runs/last.pt")
LOG = Path("training/runs/log.jsonl")
IGNORE = -100
SHORT_SHARE = 0.65  # prompts decoded in a first, shorter chunk: less padding


class Heads(nn.ModuleDict):
    """The heads of the auxiliary losses."""

    def __init__(self) -> None:
        outputs = {"see_digit": 11, "see_slot": 5, "hear_digit": 11, "hear_slot": 5}
        outputs |= {"picture": 10, "colour": 7, "speech": 10, "equal": 1}
        super().__init__({name: nn.Linear(DIM, size) for name, size in outputs.items()})


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Mean cross-entropy over all leading dimensions."""
    return functional.cross_entropy(logits.flatten(0, -2), target.flatten(), weight=weight)


def text_start(prompt: Prompt) -> int:
    """Index of the first word after ``<bos>`` and the placeholders."""
    return 1 + tokens.IMAGE_TOKENS * prompt.has_image + tokens.AUDIO_TOKENS * prompt.has_audio


def positions(prompts: list[Prompt], length: int) -> torch.Tensor:
    """Position ids (n, length); one prompt in six has a jump or two of up to 60 in its text, as long padding makes."""
    ids = torch.arange(length).repeat(len(prompts), 1)
    for row, prompt in enumerate(prompts):
        if torch.rand(()).item() < 1 / 6:
            for _ in range(int(torch.randint(1, 3, ()))):
                place = int(torch.randint(text_start(prompt), len(prompt.ids), ()))
                ids[row, place:] += int(torch.randint(1, 61, ()))
    return ids


class Chunk(NamedTuple):
    """Some of a batch's prompts, decoded together: summed answer loss, answer tokens, slot equality."""

    loss: torch.Tensor
    asked: int
    equal: torch.Tensor
    target: torch.Tensor


def decode_chunk(
    model: OmniModel,
    heads: Heads,
    batch: Batch,
    rows: list[int],
    queries: tuple[torch.Tensor, torch.Tensor],
) -> Chunk:
    """Teacher-forced decoding of the prompts ``rows`` (right padding) with the scenes' picture and speech queries."""
    prompts, owners = [batch.prompts[i] for i in rows], [batch.owners[i] for i in rows]
    length = max(len(p.ids) + len(p.answer) for p in prompts)
    ids, target = torch.full((len(rows), length), tokens.PAD), torch.full((len(rows), length), IGNORE)
    for row, prompt in enumerate(prompts):
        start, end = len(prompt.ids), len(prompt.ids) + len(prompt.answer)
        ids[row, :end] = torch.tensor(prompt.ids + prompt.answer)
        target[row, start:end] = torch.tensor(prompt.answer)
    seen = [owner for owner, p in zip(owners, prompts, strict=True) if p.has_image]
    heard = [owner for owner, p in zip(owners, prompts, strict=True) if p.has_audio]
    embedded = model.embed(ids, queries[0][seen], queries[1][heard])
    states = model.language_model.model(
        inputs_embeds=embedded, position_ids=positions(prompts, length), use_cache=False
    ).last_hidden_state
    asked = target[:, 1:] != IGNORE
    logits = model.language_model.lm_head(states[:, :-1][asked])
    loss = functional.cross_entropy(logits, target[:, 1:][asked], reduction="sum")
    both = [row for row, p in enumerate(prompts) if p.has_image and p.has_audio]
    first = 1 + tokens.IMAGE_TOKENS
    equal = heads["equal"](states[both, first : first + 4]).squeeze(-1)
    same = (batch.labels["picture"] == batch.labels["speech"])[[owners[row] for row in both]].float()
    return Chunk(loss, int(asked.sum()), equal, same)


def losses(model: OmniModel, heads: Heads, batch: Batch) -> dict[str, torch.Tensor]:
    """Every loss of a batch by name."""
    seen, image = model.see(batch.pixels)
    heard, audio = model.hear(batch.mels)
    order = sorted(range(len(batch.prompts)), key=lambda i: len(batch.prompts[i].ids))
    short = int(len(order) * SHORT_SHARE)
    parts = (order[:short], order[short:])
    chunks = [decode_chunk(model, heads, batch, rows, (image, audio)) for rows in parts]
    equal, target = torch.cat([c.equal for c in chunks]), torch.cat([c.target for c in chunks])
    background = torch.ones(11)
    background[0] = 0.15
    truth = batch.labels
    see_slot = cross_entropy(heads["see_slot"](seen), truth["picture_slots"], background[:5])
    hear_slot = cross_entropy(heads["hear_slot"](heard), truth["speech_slots"])
    return {
        "answers": torch.stack([c.loss for c in chunks]).sum() / sum(c.asked for c in chunks),
        "see": cross_entropy(heads["see_digit"](seen), truth["picture_digits"], background) + 0.5 * see_slot,
        "hear": cross_entropy(heads["hear_digit"](heard), truth["speech_digits"]) + 0.5 * hear_slot,
        "picture": cross_entropy(heads["picture"](image[:, :4]), truth["picture"]),
        "colour": cross_entropy(heads["colour"](image[:, 4]), truth["colour"]),
        "speech": cross_entropy(heads["speech"](audio[:, :4]), truth["speech"]),
        "equal": functional.binary_cross_entropy_with_logits(equal, target),
    }


def optimiser(model: nn.Module, heads: nn.Module) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only."""
    parameters = [p for p in (*model.parameters(), *heads.parameters()) if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.03},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, 1e-3, betas=(0.9, 0.98))


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, flat until HOLD_SHARE of the steps, then a cosine down to 2 % of the peak."""
    rate, hold = recipe.PEAK_RATE * min(1.0, (step + 1) / recipe.WARM_UP_STEPS), recipe.HOLD_SHARE
    done = step / steps
    return rate if done < hold else rate * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * (done - hold) / (1 - hold))))


class Trainer:
    """A model from random weights, its heads and optimizer; ``mean`` are running means of the losses."""

    def __init__(self, seed: int = recipe.SEED, steps: int = recipe.STEPS) -> None:
        torch.manual_seed(seed)
        self.seed, self.steps = seed, steps
        self.model, self.heads = OmniModel(), Heads()
        self.optimizer = optimiser(self.model, self.heads)
        self.mean = dict.fromkeys(recipe.LOSS_WEIGHTS, 0.0)

    def run(self, bank: SpeechBank, fonts: tuple[str, ...] | None = None) -> Iterator[int]:
        """Take every step; yields how many are done."""
        batches = Batches(bank, self.seed, self.steps, fonts)
        loader = DataLoader(batches, batch_size=None, num_workers=1, prefetch_factor=8)
        for step, batch in enumerate(loader):
            self.step(step, batch)
            yield step + 1

    def step(self, step: int, batch: Batch) -> None:
        """One update."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.steps)
        parts = losses(self.model.train(), self.heads, batch)
        self.optimizer.zero_grad()
        torch.stack([recipe.LOSS_WEIGHTS[name] * loss for name, loss in parts.items()]).sum().backward()
        torch.nn.utils.clip_grad_norm_([*self.model.parameters(), *self.heads.parameters()], 1.0)
        self.optimizer.step()
        for name, loss in parts.items():
            self.mean[name] += (loss.item() - self.mean[name]) / min(step + 1, 20)


def train() -> None:
    """The whole run: a line of LOG every 25 steps, CHECKPOINT and validation scores every 200 and at the end."""
    torch.set_num_threads(1)
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    trainer, started, processor = Trainer(), time.time(), time.process_time()
    with LOG.open("w") as log:
        for done in trainer.run(SpeechBank.from_bank(BANK)):
            if done % 25 and done != trainer.steps:
                continue
            line: dict[str, object] = {"step": done, "wall_seconds": round(time.time() - started)}
            line |= {"processor_seconds": round(time.process_time() - processor)}
            line |= {name: round(value, 3) for name, value in trainer.mean.items()}
            if done % 200 == 0 or done == trainer.steps:
                line["exact"] = validation_scores(trainer.model, BANK)
                torch.save(trainer.model.state_dict(), CHECKPOINT)
            print(json.dumps(line), file=log, flush=True)


if __name__ == "__main__":
    train()
