"""Where the repository lies, and what files of it are ours."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def own_files(suffix: str = "") -> list[Path]:
    """Files that git tracks or would track, in order."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for name in sorted(set(names)) if (path := ROOT / name).suffix.endswith(suffix) and path.is_file()]
