"""The fault proxy: a transparent HTTP/1.1 wire to one upstream that perturbs only what a live lease selects."""
