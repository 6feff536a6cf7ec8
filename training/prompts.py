"""Training prompts: a wording, damaged, wrapped in padding, and the answer that what is left deserves."""

import random
from typing import NamedTuple

from chaos_mm.target import questions, tokens
from training.codes import Code

TASKS = ("image", "colour", "audio", "agreement", "text")
NEEDS = {
    "image": (True, False),
    "colour": (True, False),
    "audio": (False, True),
    "agreement": (True, True),
    "text": (False, False),
}
GROUPS = (questions.PICTURE, questions.SPEECH, questions.NUMBER, questions.COLOUR, questions.SAME)
UNKNOWN_WORD = "<unk>"


class Scene(NamedTuple):
    """What one example is about: the picture's code and colour index, the spoken code, the written code."""

    picture: Code
    colour: int
    speech: Code
    written: Code


def padding_is_held_out(before: int, after: int) -> bool:
    """Whether the pair of padding sentences (before and after the question) is kept out of training: one in ten."""
    return (before * 31 + after * 17) % 10 == 0


def padding_pair(rng: random.Random, held_out: bool) -> tuple[int, int]:
    """Indices of two padding sentences from the wanted side of the split."""
    while True:
        before, after = rng.randrange(len(questions.PADDING)), rng.randrange(len(questions.PADDING))
        if padding_is_held_out(before, after) == held_out:
            return before, after


def answer(task: str | None, words: list[str], scene: Scene, has_image: bool, has_audio: bool) -> list[str]:
    """The right answer's words: ``unknown`` where no task is named or a medium that it needs is missing."""
    if task is None or (NEEDS[task][0] and not has_image) or (NEEDS[task][1] and not has_audio):
        return [questions.UNKNOWN]
    if task == "text":
        return [word for word in words if word.isdigit()]
    if task == "colour":
        return [questions.COLOURS[scene.colour]]
    if task == "agreement":
        return ["yes" if scene.picture == scene.speech else "no"]
    return list(map(str, scene.picture if task == "image" else scene.speech))


def wording(rng: random.Random, task: str, code: Code) -> list[str]:
    """One wording of the task, a quarter with key words exchanged for their like, a tenth with unknown filler words."""
    words = rng.choice(questions.QUESTIONS[task]).replace("{}", " ".join(map(str, code))).split()
    if rng.random() < 0.25:
        words = [exchange(rng, word) for word in words]
    if rng.random() < 0.1:
        words = [
            UNKNOWN_WORD if w not in questions.KEY_WORDS and not w.isdigit() and rng.random() < 0.25 else w
            for w in words
        ]
    return words


def exchange(rng: random.Random, word: str) -> str:
    """Another word of the same meaning."""
    for group in GROUPS:
        if word in group:
            return rng.choice(sorted(group))
    return word


def truncate(words: list[str], share: float, end: str) -> list[str]:
    """Cut ``round(share * len(words))`` words from the head, the tail or half from both."""
    cut = round(share * len(words))
    head = cut if end == "head" else 0 if end == "tail" else cut // 2
    return words[head : len(words) - (cut - head)]


def damage(rng: random.Random, words: list[str], amount: float) -> list[str]:
    """Leave the question whole, cut 5-75 % from an end (30 % at amount 1), or lose words anywhere (12 %)."""
    draw = rng.random() / max(amount, 1e-9)
    if draw < 0.30:
        return truncate(words, rng.uniform(0.05, 0.75), rng.choice(("head", "tail", "both")))
    if draw < 0.42:
        loss = rng.uniform(0.03, 0.35)
        return [word for word in words if rng.random() >= loss]
    return words


def pad(rng: random.Random, words: list[str], held_out: bool = False) -> list[str]:
    """Put padding before, after or around the question, now and then several sentences, unknown or shuffled words."""
    pair = padding_pair(rng, held_out)
    sides = [questions.PADDING[i].split() for i in pair]
    if rng.random() < 0.08:
        sides = [side + " ".join(rng.sample(questions.PADDING, rng.randint(1, 3))).split() for side in sides]
    if rng.random() < 0.2:
        sides = [[UNKNOWN_WORD if rng.random() < 0.3 else word for word in side] for side in sides]
    if rng.random() < 0.15:
        sides = [rng.sample(side, rng.randint(1, len(side))) for side in sides]
    where = rng.choice(("before", "after", "around"))
    return (sides[0] if where != "after" else []) + words + (sides[1] if where != "before" else [])


def media_for(rng: random.Random, task: str) -> tuple[bool, bool]:
    """Which media come along: those needed (4 % lack one), and often others, so that only the words tell the task."""
    extra = 0.25 if task == "text" else 0.45
    image, audio = (need or rng.random() < extra for need in NEEDS[task])
    if rng.random() < 0.04:
        return (False, audio) if rng.random() < 0.5 else (image, False)
    return image, audio


class Prompt(NamedTuple):
    """Token ids of the prompt and of the right answer (with ``<eos>``), and the media that come along."""

    ids: list[int]
    answer: list[int]
    has_image: bool
    has_audio: bool


def ids_of(words: list[str]) -> list[int]:
    """Ids of words that are in the vocabulary or ``<unk>``."""
    vocabulary = tokens.tokenizer().get_vocab()
    return [vocabulary[word] for word in words]


def make_prompt(words: list[str], scene: Scene, has_image: bool, has_audio: bool) -> Prompt:
    """The prompt of a text and its right answer by what the text still asks."""
    right = answer(questions.task_of(words), words, scene, has_image, has_audio)
    return Prompt(
        tokens.prompt_ids(ids_of(words), has_image, has_audio), [*ids_of(right), tokens.EOS], has_image, has_audio
    )


def training_prompt(rng: random.Random, task: str, scene: Scene, amount: float) -> Prompt:
    """One question about the scene as training sees it; ``amount`` 0-1 scales the damage to the question."""
    words = damage(rng, wording(rng, task, scene.written), amount)
    if rng.random() < 0.05 * amount:
        words = []
    if rng.random() < 0.5:
        words = pad(rng, words)
    if task != "text" and rng.random() < 0.03:
        place = rng.randint(0, len(words))
        words = words[:place] + [str(rng.randrange(10)) for _ in range(rng.randint(1, 4))] + words[place:]
    return make_prompt(words, scene, *media_for(rng, task))
