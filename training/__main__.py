"""``python -m training``: the whole recipe, from the speech bank (made if missing) to the shipped files and table."""

import subprocess
import sys

from training import evaluate, export, train


def main() -> None:
    """Bank, training, export, evaluation."""
    if not train.BANK.exists():
        subprocess.run([sys.executable, "-m", "training.speech_bank", str(train.BANK)], check=True)
    export.write_tokenizer()
    train.train()
    print(export.export(train.CHECKPOINT))
    evaluate.main(600)


if __name__ == "__main__":
    main()
