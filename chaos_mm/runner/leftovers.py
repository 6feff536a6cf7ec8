"""What a run that died left at the points: released by its owner's name, other runs' leases untouched."""

from collections.abc import Iterator, Mapping
from typing import Any

from chaos_mm.controls.names import POINT_NAMES, control_urls, open_client
from chaos_mm.core.errors import ChaosMMError, PointUnreachable

__all__ = ["release"]

_SECONDS = 2.0


def release(run: str, configuration: Mapping[str, Any]) -> list[str]:
    """Release every live lease of ``run`` at every point that answers; what was done and what was not, in words.

    The token is the user's own file's: a point that takes another one says so, and its lease ends by keepalive.
    """
    said = []
    for url in sorted({url for point in POINT_NAMES for url in control_urls(point, configuration)}):
        try:
            said += list(_release_at(url, run))
        except PointUnreachable:
            continue  # a point that is not there holds nothing; one that hangs loses the lease by keepalive
        except ChaosMMError as error:
            said.append(f"{url}: not asked to release, the leases of {run} end by keepalive: {error}")
    return said


def _release_at(url: str, run: str) -> Iterator[str]:
    client = open_client(url, None, _SECONDS)
    for lease in client.leases(run):
        if not lease.get("ended_by") and lease.get("owner") == run:
            client.release(str(lease["name"]), run)
            yield f"released {lease['name']} of {run} at {url}"
