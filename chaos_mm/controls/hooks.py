"""Whether the toolkit calls every hook of the control: it swallows what they raise, and a scope leaves some out."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Hooks"]


class Hooks:
    """What was called and what was not. ``missing``: names of hooks that should have been called, as they show."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self._open: list[Mapping[str, Any]] = []

    def missed(self, name: str) -> None:
        """A hook that should have been called by now was not."""
        if name not in self.missing:
            self.missing.append(name)

    def before(self, activity: Mapping[str, Any]) -> None:
        """An activity begins. In the foreground the one before it must have ended."""
        if any(one is activity for one in self._open):  # one with controls of its own comes here twice
            return
        if any(not one.get("background") for one in self._open) and not activity.get("background"):
            self.missed("after_activity")
            self._open = [one for one in self._open if one.get("background")]
        self._open.append(activity)

    def after(self, activity: Mapping[str, Any]) -> None:
        """An activity has ended, or was cut short."""
        if not any(one is activity for one in self._open):
            if activity is not self._last:
                self.missed("before_activity")
            return
        self._open = [one for one in self._open if one is not activity]
        self._last = activity

    _last: Mapping[str, Any] | None = None
