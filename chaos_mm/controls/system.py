"""What ``chaos discover`` finds of the system: points, faults, models. Half a second an address, never an error."""

from collections.abc import Mapping
from typing import Any

from chaos_mm.controls.names import POINT_NAMES, TARGET_URL, control_urls, open_client, text_of
from chaos_mm.controls.target import models
from chaos_mm.core.errors import ChaosMMError

__all__ = ["discover_system", "look_at_points"]

_SECONDS = 0.5


def discover_system(configuration: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """``{"points": [...], "faults": [...], "target": {...}}`` as plain JSON."""
    from chaos_mm import faults

    target_url = text_of(TARGET_URL, configuration)
    return {
        "points": look_at_points(configuration),
        "faults": sorted(faults.catalogue()),
        "target": {"url": target_url, "models": models(target_url, _SECONDS)},
    }


def look_at_points(configuration: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """One entry a configured address: point, url, reachable, and what its health says."""
    return [_look(point, url) for point in POINT_NAMES for url in control_urls(point, configuration)]


def _look(point: str, url: str) -> dict[str, Any]:
    try:
        health = open_client(url, None, _SECONDS).health()
    except ChaosMMError:
        return {"point": point, "url": url, "reachable": False}
    shown = {key: health.get(key) for key in ("version", "armed", "stopped", "catalogue")}
    return {"point": point, "url": url, "reachable": True, **shown}
