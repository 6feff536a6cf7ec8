"""Whether a service that says it is well truly generates: against a service that can be hung at will."""

import base64
import io
import itertools
import math
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from chaos_mm import probes
from chaos_mm.controls import code_picture, exposition, liveness
from chaos_mm.controls.liveness import Attempt, Glance
from tests.edge.service import Service
from tests.edge.test_probes import is_no_data

RUNNING = "vllm:num_requests_running"
TOKENS = "vllm:generation_tokens_total"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


@pytest.fixture
def setting(service: Service) -> dict[str, Any]:
    return {"configuration": {"target_url": service.url, "target_model": "m"}}


def test_a_service_that_generates_is_alive_and_one_that_hangs_is_not(service: Service, setting: dict[str, Any]) -> None:
    alive = probes.generation_alive(**setting)
    assert (alive["value"], alive["health"], alive["modality"]) == (1.0, True, "text")
    service.going.clear()
    began = time.monotonic()
    hung = probes.generation_alive(timeout_seconds=0.4, **setting)
    assert (hung["measured"], hung["value"], hung["health"]) == (True, 0.0, True)
    assert hung["reason"] and time.monotonic() - began < 1.4


def test_an_answer_other_than_200_is_no_generation(service: Service, setting: dict[str, Any]) -> None:
    service.status, service.health = 500, 503
    answer = probes.generation_alive(**setting)
    assert (answer["value"], answer["health"]) == (0.0, False)
    assert "500" in answer["reason"]


def test_a_picture_is_asked_about_with_a_code_of_its_own(service: Service, setting: dict[str, Any]) -> None:
    for _ in range(2):
        assert probes.generation_alive(modality="image", **setting)["value"] == 1.0
    urls = [one["messages"][0]["content"][0]["image_url"]["url"] for one in service.asked]
    assert len(set(urls)) == 2
    picture = Image.open(io.BytesIO(base64.b64decode(urls[0].partition("base64,")[2])))
    assert picture.format == "PNG" and picture.size == (124, 80)


ART = """
...#...###..#####..###.
..##..#...#.....#.#...#
.#.#..#..##....#......#
#..#..#.#.#...#......#.
#####.##..#..#......#..
...#..#...#..#.....#...
...#...###...#....#####
"""


def test_a_drawn_code_is_what_it_says() -> None:
    """Drawn here by hand, and read by Pillow: every dot is a square of its scale."""
    pixels = np.asarray(Image.open(io.BytesIO(code_picture.draw("4072", scale=3))))
    dots = pixels[::3, ::3]
    assert (np.kron(dots, np.ones((3, 3), np.uint8)) == pixels).all()
    rows, columns = np.nonzero(dots == 0)
    inked = dots[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] == 0
    assert ["".join(".#"[int(dot)] for dot in row) for row in inked] == ART.split()


def test_no_two_digits_look_alike() -> None:
    drawn = {d: np.asarray(Image.open(io.BytesIO(code_picture.draw(d, scale=1)))) for d in "0123456789"}
    apart = [(drawn[a] != drawn[b]).sum() for a, b in itertools.combinations(drawn, 2)]
    assert min(apart) >= 3


def test_health_lies_for_as_long_as_it_is_fine_and_nothing_generates(service: Service, setting: dict[str, Any]) -> None:
    honest = probes.health_lie_seconds(window_seconds=0.6, timeout_seconds=0.3, **setting)
    assert (honest["measured"], honest["value"]) == (True, 0.0)
    assert honest["generated"] == honest["attempts"] > 1
    service.going.clear()
    lying = probes.health_lie_seconds(window_seconds=1.0, timeout_seconds=0.3, **setting)
    assert lying["value"] == pytest.approx(1.0, abs=0.25), lying
    assert lying["health_fine"] == lying["samples"] > 2
    service.health = 503
    down = probes.health_lie_seconds(window_seconds=0.6, timeout_seconds=0.3, **setting)
    assert (down["measured"], down["value"], down["health_fine"]) == (True, 0.0, 0)


def test_a_hang_in_the_middle_counts_for_its_length(service: Service, setting: dict[str, Any]) -> None:
    hang = threading.Timer(0.5, service.going.clear)
    heal = threading.Timer(1.2, service.going.set)
    for timer in (hang, heal):
        timer.start()
    found = probes.health_lie_seconds(window_seconds=2.0, timeout_seconds=0.2, **setting)
    assert found["value"] == pytest.approx(0.7, abs=0.3), found
    assert 0 < found["generated"] < found["attempts"]


def test_a_run_that_stops_ends_the_watch(service: Service) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    found = liveness.lies(lambda: True, lambda: True, 30.0, stop.wait)
    assert time.monotonic() - began < 2.5
    assert found["window_seconds"] < 1.5 and found["measured"]


def test_lies_are_the_overlap_of_silence_and_fine_health() -> None:
    """By hand: silent in [1, 3) and [6, 7); fine in [0, 2) and [5, 8); so 1 s and 1 s."""
    attempts = [Attempt(0, True), Attempt(1, False), Attempt(3, True), Attempt(6, False), Attempt(7, True)]
    glances = [Glance(0, True), Glance(2, False), Glance(5, True)]
    assert liveness.lie_seconds(attempts, glances, 8.0) == 2.0
    assert liveness.lie_seconds(attempts, glances, 6.5) == 1.5
    assert liveness.lie_seconds([], glances, 8.0) == liveness.lie_seconds(attempts, [], 8.0) == 0.0


def test_lies_against_counting_in_small_steps() -> None:
    random_number = random.Random(7)
    for _ in range(20):
        times = [sorted(random_number.uniform(0, 10) for _ in range(6)) for _ in range(2)]
        attempts = [Attempt(at, random_number.random() < 0.5) for at in times[0]]
        glances = [Glance(at, random_number.random() < 0.5) for at in times[1]]
        counted = 0
        for step in range(10_000):
            at = step / 1000 + 0.0005
            silent = [one for one in attempts if one.began <= at][-1:]
            fine = [one for one in glances if one.at <= at][-1:]
            counted += bool(silent and not silent[0].answered and fine and fine[0].fine)
        assert liveness.lie_seconds(attempts, glances, 10.0) == pytest.approx(counted / 1000, abs=0.01)


def shown(running: float, tokens: float) -> str:
    return f'{RUNNING}{{model_name="m"}} {running}\n{TOKENS}{{model_name="m"}} {tokens}\n'


@pytest.mark.parametrize(
    ("looks", "measured", "value"),
    [
        ([(1, 5), (1, 9)], True, 1.0),
        ([(1, 5), (2, 5)], True, 0.0),
        ([(0, 5), (0, 9)], True, 1.0),
        ([(0, 5), (0, 5)], False, 0.0),
        ([(1, 5), (0, 5)], False, 0.0),
        ([(1, 5), (1, 2)], False, 0.0),
    ],
)
def test_progress_is_tokens_while_something_runs(
    service: Service, setting: dict[str, Any], looks: list[tuple[float, float]], measured: bool, value: float
) -> None:
    service.metrics = [shown(*look) for look in looks]
    answer = probes.forward_progress(window_seconds=0.5, **setting)
    assert (answer["measured"], answer["value"]) == (measured, value), answer
    assert answer["samples"] >= 2 and (answer["reason"] or value == 1.0)


def test_without_vllms_names_there_is_no_data(service: Service, setting: dict[str, Any]) -> None:
    service.metrics = f"{RUNNING} 1\n"
    assert is_no_data(probes.forward_progress(window_seconds=0.5, **setting))
    service.close()
    assert is_no_data(probes.forward_progress(window_seconds=0.5, **setting))


EXPOSED = """# HELP vllm:num_requests_running Requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a {b}"} 2.0 1700000000000
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{model_name="x"} 1.7e+06
vllm:generation_tokens_created{model_name="x"} 1.7e+09
plain 4
odd NaN
"""


def test_the_exposition_is_read_as_prometheus_own_library_reads_it() -> None:
    theirs: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(EXPOSED):
        for sample in family.samples:
            theirs.setdefault(sample.name, []).append(sample.value)
    finite = {name: [v for v in values if math.isfinite(v)] for name, values in theirs.items()}
    assert {name: exposition.samples(EXPOSED, name) for name in theirs} == finite
    assert exposition.first_known(EXPOSED, "absent", RUNNING) == 5.0
    assert exposition.first_known(EXPOSED, "vllm:generation_tokens", "odd") is None
