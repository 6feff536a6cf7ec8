"""chaos_mm: break a multimodal LLM service on purpose and prove that it keeps its SLA. A Chaos Toolkit extension.

Importing this costs the standard library only; what Chaos Toolkit needs is imported when it asks.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Dict, List  # noqa: UP035 - the names that discovery of chaoslib 1.44 can show

__all__ = ["__version__", "discover"]

DISTRIBUTION = "chaostoolkit-multimodal"

try:
    __version__ = version(DISTRIBUTION)
except PackageNotFoundError:  # a source tree that is on the path without having been installed
    __version__ = "unknown"


def discover(discover_system: bool = True) -> Dict[str, Any]:  # noqa: UP006
    """What ``chaos discover chaostoolkit-multimodal`` shows: every activity with types and defaults, and the system.

    The system part asks the points and the target for at most half a second each and never fails the discovery.
    """
    from chaoslib.discovery.discover import initialize_discovery_result

    from chaos_mm.controls.system import discover_system as look

    discovery: Dict[str, Any] = initialize_discovery_result(DISTRIBUTION, __version__, "multimodal-llm")  # noqa: UP006
    discovery["activities"].extend(load_exported_activities())
    if discover_system:
        discovery["system"] = look()
    return discovery


def load_exported_activities() -> List[Dict[str, Any]]:  # noqa: UP006
    """Every action, probe, tolerance and control of the package, as discovery describes them."""
    from chaoslib.discovery.discover import discover_actions, discover_activities, discover_probes

    return [
        *discover_actions("chaos_mm.actions"),
        *discover_probes("chaos_mm.probes"),
        *discover_probes("chaos_mm.tolerances"),
        *discover_activities("chaos_mm.controls.verdict", "control"),
    ]
