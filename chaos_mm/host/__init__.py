"""The host point: a process beside the engine that holds memory or a process, until its lease ends."""
