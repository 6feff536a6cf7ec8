"""When a guard stops a run, and when it must not."""

from typing import Any

import pytest

from chaos_mm import faults
from chaos_mm.controls.guards import Guards, broken, is_whole, lifted
from chaos_mm.controls.objectives import chosen_objectives
from chaos_mm.sli.objectives import Objective

BYSTANDERS = Objective(
    "bystanders", "bystander_ok", threshold=0.9, window_seconds=20.0, min_samples=10, hold_seconds=5.0, guard=True
)
LEAKS = Objective(
    "leaks", "leak_count", comparison="lte", threshold=0.0, window_seconds=20.0, min_samples=5, guard=True
)


def answer(value: float, samples: int, seconds: float = 20.0, unit: str = "ratio") -> dict[str, Any]:
    return {"measured": True, "value": value, "samples": samples, "window_seconds": seconds, "unit": unit}


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (answer(0.95, 40), ""),
        (answer(0.80, 40), "broken"),
        (answer(0.80, 9), None),  # too few to tell
        ({**answer(0.5, 40), "measured": False}, None),
        ({**answer(0.5, 40), "value": float("nan")}, None),
        ({}, None),
        # 5 s of 20 s: 40 requests are expected in all, so 4 may miss
        (answer(0.5, 10, 5.0), "broken"),
        (answer(0.6, 10, 5.0), None),
        (answer(0.0, 1, 0.2), None),  # the very first one: 100 are expected
        (answer(0.0, 10, 0.0), None),
    ],
)
def test_a_share(given: dict[str, Any], state: str | None) -> None:
    found = broken(BYSTANDERS, given)
    assert found is None if state is None else bool(found) == bool(state)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (answer(0.0, 50, 20.0, "requests"), ""),
        (answer(1.0, 50, 20.0, "requests"), "broken"),
        (answer(1.0, 3, 2.0, "requests"), "broken"),  # it can only grow
        (answer(0.0, 3, 2.0, "requests"), None),
    ],
)
def test_a_count_of_bad_things(given: dict[str, Any], state: str | None) -> None:
    found = broken(LEAKS, given)
    assert found is None if state is None else bool(found) == bool(state)


def test_a_percentile_is_judged_over_whole_windows_alone() -> None:
    slow = Objective("slow", "ttft_p95", comparison="lte", threshold=1.0, window_seconds=20.0, guard=True)
    assert broken(slow, answer(3.0, 50, 5.0, "s")) is None
    assert broken(slow, answer(3.0, 50, 20.0, "s"))


def test_a_whole_window_may_lack_a_hair() -> None:
    assert is_whole(BYSTANDERS, answer(1.0, 1, 19.99))
    assert not is_whole(BYSTANDERS, answer(1.0, 1, 19.0))
    assert not is_whole(BYSTANDERS, {})


def test_it_halts_when_broken_for_its_hold_time_on_end() -> None:
    guards, bad, good = Guards([BYSTANDERS]), answer(0.5, 40), answer(1.0, 40)
    looks = [(0.0, bad), (4.0, bad), (4.5, good), (5.0, bad), (9.9, bad)]
    assert [guards.look(at, {"bystanders": one}) for at, one in looks] == [None] * 5
    tripped = guards.look(10.0, {"bystanders": bad})
    assert tripped is not None
    assert tripped[0] == "bystanders"
    assert "for 5.0 s on end" in tripped[1]


def test_an_answer_that_tells_nothing_neither_breaks_nor_mends() -> None:
    guards, bad = Guards([BYSTANDERS]), answer(0.5, 40)
    guards.look(0.0, {"bystanders": bad})
    assert guards.look(3.0, {"bystanders": {}}) is None
    assert guards.look(5.0, {"bystanders": bad}) is not None


def test_without_a_hold_time_it_halts_at_once_and_only_guards_do() -> None:
    plain = Objective("plain", "ok_ratio", threshold=0.9, window_seconds=20.0)
    guards = Guards([plain, LEAKS])
    assert guards.look(0.0, {"plain": answer(0.0, 99), "leaks": answer(0.0, 9, 20.0, "requests")}) is None
    tripped = guards.look(1.0, {"leaks": answer(2.0, 9, 20.0, "requests")})
    assert tripped is not None and tripped[0] == "leaks"


def audience(name: str) -> Objective:
    filters = {"audience": name} if name else {}
    return Objective("leaks", "leak_count", filters, comparison="lte", window_seconds=20.0, guard=True)


@pytest.mark.parametrize("who", ["canary", "bystander"])
def test_it_says_among_whom_it_leaked(who: str) -> None:
    tripped = Guards([audience(who)]).look(0.0, {"leaks": answer(3.0, 50, 20.0, "requests")})
    assert tripped is not None and f"(of the audience '{who}')" in tripped[1]


def test_a_fault_that_carries_content_lifts_the_guard_over_canaries_and_no_other() -> None:
    carries, noise = faults.get("media_key_collision"), faults.get("image_noise")
    assert carries.carries_content and not noise.carries_content
    assert lifted(audience("canary"), [noise, carries])
    assert not lifted(audience("canary"), [noise])
    assert not lifted(audience("bystander"), [carries])
    assert not lifted(audience(""), [carries])  # others are among them
    answers = Objective("answers", "canary_exact", {"audience": "canary"}, guard=True)
    assert not lifted(answers, [carries])


def injecting(*names: str, objective: str = "picture-answers") -> dict[str, Any]:
    def python(func: str, module: str = "actions", **arguments: Any) -> dict[str, Any]:
        provider = {"type": "python", "module": f"chaos_mm.{module}", "func": func, "arguments": arguments}
        return {"type": "action", "name": func, "provider": provider}

    hypothesis = {"title": "t", "probes": [python("sli", "probes", objective=objective)]}
    return {"steady-state-hypothesis": hypothesis, "method": [python(f"inject_{name}") for name in names]}


@pytest.mark.parametrize(
    ("names", "guarded"),
    [
        ((), True),
        (("image_noise",), True),
        (("kv_cache_noise", "attention_delay"), True),
        (("media_key_collision",), False),
        (("image_noise", "kv_cache_swap"), False),
    ],
)
def test_the_shipped_guards_of_a_run(names: tuple[str, ...], guarded: bool) -> None:
    judged, guards = chosen_objectives(injecting(*names), {}, {})
    assert [one.name for one in judged] == ["picture-answers"]
    always = {"bystanders-unharmed", "no-leaks"}
    assert {one.name for one in guards} == always | ({"canaries-kept-apart"} if guarded else set())


def test_a_lifted_guard_that_is_named_judges_and_stops_nothing() -> None:
    (named,), guards = chosen_objectives(injecting("kv_cache_swap", objective="canaries-kept-apart"), {}, {})
    assert (named.name, named.guard) == ("canaries-kept-apart", False)
    assert {one.name for one in guards} == {"bystanders-unharmed", "no-leaks"}
    (named,), _ = chosen_objectives(injecting("kv_cache_noise", objective="canaries-kept-apart"), {}, {})
    assert named.guard
