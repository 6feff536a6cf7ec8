"""The control API every injection point serves, and the client that speaks to it. Standard library only."""
