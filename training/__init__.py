"""How the demo target was trained: a developer's tool, not in the wheel."""
