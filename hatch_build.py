"""Build hook: an editable install gets a ``top_level.txt`` too, by which ``chaos discover`` finds the import name."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TopLevel(BuildHookInterface[Any]):
    """Adds the file to the metadata of an editable wheel; a plain wheel lists its files and needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the build; ``version`` is the kind of wheel."""
        if version != "editable":
            return
        path = Path(self.directory) / "top_level.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("chaos_mm\n")
        core = self.metadata.core
        info = f"{core.name.replace('-', '_')}-{self.metadata.version}.dist-info"
        build_data["force_include_editable"][str(path)] = f"{info}/top_level.txt"
