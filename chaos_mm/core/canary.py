"""Canary request ids: made by the load, recognised by every point, forged by nobody without the token.

``cmm-<run>-<n>-<mac>``: mac is a keyed blake2b over the rest, its key derived from the control token, so that a
user's request can never be taken for a canary and samples hold nothing of a user's.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_ID = re.compile(r"cmm-(?P<run>[a-z0-9]{1,40})-(?P<n>[0-9]{1,12})-(?P<mac>[0-9a-f]{16})(?![0-9a-f])")
_RUN = re.compile(r"[a-z0-9]{1,40}")
_MAX_HEADER = 256


@dataclass(frozen=True)
class CanaryId:
    """A verified canary id."""

    run: str
    n: int
    id: str


def new_run_id() -> str:
    """A fresh run id, the owner of its leases: ``r`` and 12 hex digits."""
    return "r" + secrets.token_hex(6)


def canary_key(token: str) -> bytes:
    """32 bytes derived from the control token."""
    return hashlib.blake2b(token.encode(), digest_size=32, person=b"chaos_mm.canary").digest()


def canary_id(key: bytes, run: str, n: int) -> str:
    """The id of the n-th canary of a run. Raises ValueError on a run that is not 1–40 of ``[a-z0-9]``."""
    if not _RUN.fullmatch(run) or not 0 <= n < 10**12:
        raise ValueError(f"canary_id: run={run!r}, n={n!r}: a run is 1-40 of a-z 0-9, n in [0, 1e12)")
    body = f"cmm-{run}-{n}"
    return f"{body}-{_mac(key, body)}"


def read_canary_id(key: bytes, text: str) -> CanaryId | None:
    """The canary id in ``text`` when its mac holds, else None.

    Engines wrap the id (vLLM: ``chatcmpl-<id>-<8 hex>``), so it is searched, not matched whole.
    """
    if len(text) > _MAX_HEADER:
        return None
    for found in _ID.finditer(text):
        body, mac = found.group(0).rsplit("-", 1)
        if hmac.compare_digest(_mac(key, body), mac):
            return CanaryId(found["run"], int(found["n"]), found.group(0))
    return None


def _mac(key: bytes, body: str) -> str:
    return hashlib.blake2b(body.encode(), key=key, digest_size=8).hexdigest()
