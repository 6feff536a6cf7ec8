"""The Chaos Toolkit control ``chaos_mm.controls.verdict`` and the live run behind it, which the actions ask."""
