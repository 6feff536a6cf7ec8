"""All rows of the truth table, by group."""

from collections.abc import Mapping

from tests.truth.ending import ENDING
from tests.truth.files import FILES
from tests.truth.judging import JUDGING
from tests.truth.scenario import Scenario

GROUPS: Mapping[str, tuple[Scenario, ...]] = {**JUDGING, **ENDING, **FILES}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)
