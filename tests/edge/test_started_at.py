"""Whether another process serves than before is read from its start time, in Prometheus' usual words."""

import pytest

from chaos_mm.controls.target import started_at
from tests.edge.canned import canned
from tests.ports import free_ports


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (b"a 1\nprocess_start_time_seconds 1.78e+09\nb 2\n", 1.78e9),
        (b'process_start_time_seconds{model="x"} 1700000000.25\n', 1700000000.25),
        (b"# HELP process_start_time_seconds 5\n", None),
        (b"process_start_time_seconds soon\n", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_the_start_time_is_read_or_unknown(text: bytes, at: float | None) -> None:
    with canned() as metrics:
        metrics.text = text
        assert started_at(metrics.url, 2.0) == at


def test_a_silent_address_is_unknown() -> None:
    assert started_at(f"http://127.0.0.1:{free_ports(1)}", 0.5) is None
