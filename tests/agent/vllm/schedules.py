"""Schedules of two requests, leases and their ends, for the tests of faults in a real vLLM's worker."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.agent.vllm.client import Answer, Canaries, together
from tests.agent.vllm.server import Server

__all__ = ["OWNER", "TOKENS", "Both", "Schedule", "lease", "steps", "text", "undone", "wait_until_proven"]

OWNER = "r0123456789ab"
TOKENS = 16
SENTENCE = "what is shown in the photo of a cat and a dog, please describe the image"


def text(sentences: int) -> str:
    """Words that no prefix cache knows; each sentence is about 20 tokens."""
    return " ".join([secrets.token_hex(8), *[SENTENCE] * sentences])


def steps(server: Server) -> int:
    """Steps that the worker has begun."""
    return sum(w["steps"] for w in server.control().get("/agent")["workers"] if w["process"] == "Worker")


@dataclass
class Both:
    """A victim and a bystander that were sent together, and the steps it took."""

    victim: Answer
    bystander: Answer
    steps: int


@dataclass
class Schedule:
    """Two requests; each run sends them anew at the same moment, the victim as a canary."""

    server: Server
    victim: Callable[[str], Answer]
    bystander: Callable[[], Answer]

    @classmethod
    def of(cls, server: Server, words: int = 8, images: tuple[str, ...] = (), tokens: int = TOKENS) -> "Schedule":
        client, mine, other = server.client, text(words), text(2)
        own, theirs = (images[:1], images[1:]) if images else ((), ())
        return cls(
            server,
            lambda name: client.chat(mine, tokens=tokens, request_id=name, images=own),
            lambda: client.chat(other, tokens=3 * tokens, images=theirs),
        )

    def run(self, canaries: Canaries) -> Both:
        before = steps(self.server)
        victim, bystander = together(lambda: self.victim(canaries.next()), self.bystander)
        assert victim.status == bystander.status == 200, (victim, bystander)
        return Both(victim, bystander, steps(self.server) - before)

    def overlapped(self, canaries: Canaries, tries: int = 4) -> Both:
        """A run in which the two shared steps: fewer than both need alone."""
        for _ in range(tries):
            both = self.run(canaries)
            if both.steps < len(both.victim.ids) + len(both.bystander.ids):
                return both
        raise AssertionError("the two requests never shared a step")


@contextmanager
def lease(server: Server, fault: str, selector: str = "canary", **params: Any) -> Iterator[dict[str, Any]]:
    """A live lease; afterwards ``found`` in what it yields is its evidence once the undo is over."""
    control, name, evidence = server.control(30), f"l{secrets.token_hex(4)}", {}
    body = {"owner": OWNER, "fault": fault, "ttl_seconds": 120, "keepalive_seconds": 120, "params": params}
    control.put_lease(name, {**body, "blast_radius": {"selector": selector}})
    try:
        yield evidence
    finally:
        control.release(name, OWNER)
        evidence["found"] = undone(server, name)


def undone(server: Server, name: str, seconds: float = 60.0) -> dict[str, Any]:
    """Its evidence, once nothing of it is pending."""
    end = time.monotonic() + seconds
    while True:
        found = server.control(30).lease(name, OWNER)
        if found["state"] == "ended" and found["undo"] is not None:
            return found
        assert time.monotonic() < end, f"the undo did not end: {found}"
        time.sleep(0.05)


def wait_until_proven(server: Server, *names: str, seconds: float = 120.0) -> None:
    """Until the agent has seen these seams take hold."""
    end = time.monotonic() + seconds
    while True:
        seams = server.control(30).get("/agent")["seams"]
        if all(seams[name]["proven"] for name in names):
            return
        assert time.monotonic() < end, seams
        time.sleep(0.2)
