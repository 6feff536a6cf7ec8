"""Hooks that never come are found out by those that do."""

from chaos_mm.controls.hooks import Hooks

FIRST, SECOND, BEHIND = {"name": "first"}, {"name": "second"}, {"name": "behind", "background": True}


def test_a_run_as_it_should_be() -> None:
    hooks = Hooks()
    for one in (FIRST, SECOND, FIRST):
        hooks.before(one)
        hooks.after(one)
    assert hooks.missing == []


def test_what_is_in_the_background_may_end_whenever_it_likes() -> None:
    hooks = Hooks()
    hooks.before(BEHIND)
    hooks.before(FIRST)
    hooks.after(FIRST)
    hooks.before(SECOND)
    hooks.after(BEHIND)
    hooks.after(SECOND)
    assert hooks.missing == []


def test_an_activity_with_controls_of_its_own_comes_twice() -> None:
    hooks = Hooks()
    for call in (hooks.before, hooks.before, hooks.after, hooks.after):
        call(FIRST)
    assert hooks.missing == []


def test_an_end_without_a_beginning() -> None:
    hooks = Hooks()
    hooks.after(FIRST)
    assert hooks.missing == ["before_activity"]


def test_a_beginning_without_an_end() -> None:
    hooks = Hooks()
    hooks.before(FIRST)
    hooks.before(SECOND)
    hooks.before(FIRST)
    assert hooks.missing == ["after_activity"]
