"""What counts as good, as the files say it."""

import json
from pathlib import Path

from chaos_mm.sli.objectives import load, packaged_dir
from tests.cli.conftest import Cli


def test_every_shipped_objective_has_its_line(cli: Cli) -> None:
    shown = cli("objectives", str(packaged_dir()))
    assert shown.exit_code == 0
    rows = {line.split()[0]: line for line in shown.stdout.splitlines()[1:]}
    assert set(rows) == set(load(packaged_dir()))
    assert all(f"{objective.threshold:g}" in rows[name] for name, objective in load(packaged_dir()).items())


def test_as_json(cli: Cli) -> None:
    told = json.loads(cli("objectives", "--json", str(packaged_dir())).stdout)
    assert told == [objective.to_json() for objective in load(packaged_dir()).values()]


def test_a_folder_without_any_is_refused_by_name(cli: Cli, tmp_path: Path) -> None:
    shown = cli("objectives", str(tmp_path))
    assert shown.exit_code == 1
    assert str(tmp_path) in shown.stderr
