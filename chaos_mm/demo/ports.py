"""The demo's ports: six beside each other, as the defaults of every URL have them."""

import socket
from dataclasses import dataclass

__all__ = ["DEFAULT_BASE", "MODEL", "Ports"]

DEFAULT_BASE = 8600
MODEL = "chaos-mm-tiny"
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """All ports, counted from ``base``."""

    base: int = DEFAULT_BASE

    @property
    def by_use(self) -> dict[str, int]:
        """Port of every listener."""
        return {
            "target": self.base,
            "proxy": self.base + 1,
            "proxy control": self.base + 2,
            "agent control": self.base + 3,
            "host control": self.base + 4,
            "load control": self.base + 5,
        }

    def url(self, use: str) -> str:
        """The address of a listener, scheme and no path."""
        return f"http://{_HOST}:{self.by_use[use]}"

    def taken(self) -> list[str]:
        """What cannot be listened on now, in words: ``8600 (target)``."""
        return [f"{port} ({use})" for use, port in self.by_use.items() if not _free(port)]

    def exports(self) -> dict[str, str]:
        """The environment that points experiments at this demo."""
        return {
            "CHAOS_MM_TARGET_URL": self.url("target"),
            "CHAOS_MM_TARGET_MODEL": MODEL,
            "CHAOS_MM_TARGET_PORT": str(self.by_use["target"]),
            "CHAOS_MM_PROXY_URL": self.url("proxy"),
            "CHAOS_MM_PROXY_CONTROL_URL": self.url("proxy control"),
            "CHAOS_MM_AGENT_CONTROL_URL": self.url("agent control"),
            "CHAOS_MM_HOST_CONTROL_URL": self.url("host control"),
            "CHAOS_MM_LOAD_CONTROL_URL": self.url("load control"),
        }


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: a port in TIME_WAIT is free, one that somebody listens on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True
