"""A reports folder with one run of every kind that an operator meets; ``write_samples`` makes and renders it."""

import dataclasses
from datetime import timedelta
from functools import partial
from pathlib import Path

from tests.report.media import pictures, spectrograms, texts
from tests.report.stories import Story, Watched, write

PICTURES = Watched("picture-answers", "canary_exact", 0.5, (0.97, 0.78, 0.97), 0.03, kind="image")
SPEECH = Watched("speech-answers", "canary_exact", 0.5, (0.95, 0.72, 0.95), 0.04, kind="audio")
AVAILABLE = Watched("availability", "ok_ratio", 0.98, (1.0, 1.0, 1.0), 0.002, rate=12.0)
BYSTANDERS = Watched("bystanders-unharmed", "bystander_ok", 0.9, (0.985, 0.985, 0.985), 0.012, rate=6.0, guard=True)
LEAKS = Watched("no-leaks", "leak_count", 0, (0, 0, 0), comparison="lte", rate=12.0, guard=True, named=False)

PASSED = Story(
    experiment="image-noise",
    title="Does the service still read noisy pictures?",
    fault="image_noise",
    params={"sigma": 0.2},
    watched=(PICTURES, AVAILABLE, BYSTANDERS, LEAKS),
    reasons=(("passed", "every objective was met in each of its windows; 60 of 60 requests were changed"),),
    achieved={"psnr_db": (14.31, 13.9, 14.8), "clipped_share": (0.24, 0.19, 0.31)},
    samples=partial(pictures, sigma=0.2),
    recovered=0.0,
    expect="passed",
)
DEVIATED = dataclasses.replace(
    PASSED,
    run="a90be7714d20",
    params={"sigma": 0.4},
    began=PASSED.began + timedelta(minutes=2),
    watched=(dataclasses.replace(PICTURES, levels=(0.97, 0.12, 0.96)), AVAILABLE, BYSTANDERS, LEAKS),
    reasons=(("deviated", "picture-answers: canary_exact is 0.08, not at least 0.5, in the window from 7 s of fault"),),
    achieved={"psnr_db": (9.62, 9.2, 10.1), "clipped_share": (0.47, 0.4, 0.55)},
    samples=partial(pictures, sigma=0.4),
    recovered=6.4,
    expect="deviated",
)
HALTED = Story(
    experiment="text-token-truncation",
    title="What if the end of a prompt is lost?",
    fault="text_token_truncation",
    params={"keep": 0.4},
    watched=(
        Watched("text-answers", "canary_exact", 0.5, (0.99, 0.31, 0.98), 0.03, kind="text"),
        AVAILABLE,
        dataclasses.replace(BYSTANDERS, levels=(0.985, 0.7, 0.97)),
        LEAKS,
    ),
    reasons=(
        ("halted", "bystanders-unharmed: bystander_ok is 0.7131, not at least 0.9, for 5 s in the fault phase"),
        ("deviated", "text-answers: canary_exact is 0.29, not at least 0.5"),
        ("deviated", "bystanders-unharmed: bystander_ok is 0.7131, not at least 0.9"),
    ),
    achieved={"tokens_cut": (11.2, 3, 24)},
    samples=texts,
    cut=34.2,
    ends=(
        {"event": "guard", "objective": "bystanders-unharmed", "reason": "bystander_ok is 0.7131, not at least 0.9"},
        {"event": "stop", "reason": "the guard bystanders-unharmed stopped the run"},
    ),
    began=PASSED.began + timedelta(minutes=4),
    recovered=9.1,
    run="3d0ef2b6c8aa",
)
NOT_EXERCISED = dataclasses.replace(
    PASSED,
    run="5be01c77aa34",
    began=PASSED.began + timedelta(minutes=6),
    watched=(dataclasses.replace(PICTURES, levels=(0.97, 0.97, 0.97)), AVAILABLE, BYSTANDERS),
    reasons=(("not_exercised", "image_noise: 0 of 0 requests were changed, at least 1 needed"),),
    selected=0.0,
    achieved={},
    samples=None,
    without_data=(24.0, 28.0),
    expect=None,
)
INTERRUPTED = dataclasses.replace(
    DEVIATED,
    run="f00dfeed1234",
    began=PASSED.began + timedelta(minutes=8),
    ends=({"event": "signal", "name": "SIGTERM", "place": "hold"},),
    cut=31.0,
    samples=None,
)
AUDIO = Story(
    experiment="audio-spectral-mask",
    title="Does the service still hear speech with holes in it?",
    fault="audio_spectral_mask",
    params={"share": 0.3},
    watched=(SPEECH, AVAILABLE, BYSTANDERS),
    reasons=(("passed", "every objective was met in each of its windows; 60 of 60 requests were changed"),),
    achieved={"snr_db": (9.5, 4.1, 17.8), "masked_share": (0.3, 0.3, 0.3)},
    samples=partial(spectrograms, share=0.3),
    recovered=1.2,
    began=PASSED.began + timedelta(minutes=10),
    run="77aa01de3c44",
)
STORIES = (PASSED, DEVIATED, HALTED, NOT_EXERCISED, AUDIO)


def write_samples(reports: Path) -> Path:
    """One folder a story, one of a run that was killed, and everything rendered; returns ``reports``."""
    from chaos_mm.report import render

    folders = [write(story, reports) for story in STORIES]
    folders.append(write(INTERRUPTED, reports, cut_in='"released"', verdict=False))
    for folder in folders:
        render.run(folder)
    render.all(reports)
    return reports
