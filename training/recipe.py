"""The numbers of the one training run that made the shipped weights."""

SEED = 0
STEPS = 1500
SCENES = 32
PEAK_RATE = 1.6e-3
WARM_UP_STEPS = 80
HOLD_SHARE = 0.35
"""Share of the steps at the peak rate; then a cosine down to 2 %."""
ASKED = {"image": 0.6, "colour": 0.4, "audio": 0.6, "text": 0.5, "agreement": 0.7}
"""How often a scene is asked for each task."""
FEW_AGREEMENT = (0.15, 0.3)
"""Over this first share of the steps agreement is asked this rarely: it cannot be learnt before reading and hearing."""
LOSS_WEIGHTS = {"answers": 1.0, "see": 0.5, "hear": 0.5, "picture": 0.4, "colour": 0.2, "speech": 0.4, "equal": 0.3}


def damage_amount(progress: float) -> float:
    """How much questions are damaged, 0-1, after a share ``progress`` of the steps: all of it from 25 % on."""
    return min(1.0, 0.15 + progress * 3.4)
