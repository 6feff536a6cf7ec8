"""Many experiments in order, each a ``chaos run`` of its own: what ``chaos run SOURCE...`` and ``chaos gameday`` do."""
