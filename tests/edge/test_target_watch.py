"""A service that answered at the start and refuses at the end did not come back, whoever sits at its address now."""

import pytest

from chaos_mm.controls.ending import TargetWatch
from chaos_mm.controls.run import Run
from tests.edge.canned import canned


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        (200, 200, False),
        (200, 429, False),
        (200, 404, True),
        (200, 503, True),
        (401, 401, False),
        (401, 200, False),
        (404, 500, True),
        (503, 503, False),
    ],
)
def test_what_counts_as_gone(before: int, after: int, gone: bool) -> None:
    with canned() as service:
        watch = TargetWatch(Run("t", configuration={"target_url": service.url}))
        service.status = before
        watch.begin()
        service.status = after
        assert watch.gone() is gone
