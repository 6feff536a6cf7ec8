"""``make bench``: every benchmark, one after the other; the worst exit code of them."""

from benchmarks import engine_bench, faults_bench, proxy_bench


def main() -> int:
    """Run all; the worst exit code."""
    return max(faults_bench.main([]), proxy_bench.main([]), engine_bench.main([]))


if __name__ == "__main__":
    raise SystemExit(main())
