"""Patches that wait for a module to be imported, so that nothing is imported before the server wants it."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

__all__ = ["ImportHook"]
Patch = Callable[[Any], None]


class ImportHook(importlib.abc.MetaPathFinder):
    """Calls ``patches[name](module)`` right after that module was executed; at once for one that is there already."""

    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = dict(patches)

    def install(self) -> None:
        """Stand first among the finders."""
        for name in [name for name in self._patches if name in sys.modules]:
            self._patches.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer; what was patched stays."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The other finders' answer, its loader made to run the patch."""
        patch = self._patches.pop(fullname, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
