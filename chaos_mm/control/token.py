"""The token that stands between a service and whoever may hurt it.

The first point to start makes it; everyone else reads it. It lives in a 0600 file only: never in an argument, a
URL, a log or a journal.
"""

import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from chaos_mm.control.state import state_dir
from chaos_mm.core.errors import ChaosMMError, Unauthorized

_FORM = re.compile(r"[A-Za-z0-9_-]{32,256}")


def token_path() -> Path:
    """``CHAOS_MM_TOKEN_FILE``, else ``token`` in the state folder."""
    named = os.environ.get("CHAOS_MM_TOKEN_FILE")
    return Path(named) if named else state_dir() / "token"


def read_token(path: Path | None = None) -> str:
    """The token of this user. Raises Unauthorized when there is none yet, ChaosMMError when the file is not safe."""
    path = path or token_path()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Unauthorized(
            f"no token at {path}: the first point to start makes it, or set CHAOS_MM_TOKEN_FILE"
        ) from None
    except OSError as error:
        raise ChaosMMError(f"token file {path} cannot be read: {error.strerror}; it must be a plain file") from None
    try:
        _check(path, os.fstat(handle))
        text = os.read(handle, 1024).decode("ascii", "replace").strip()
    finally:
        os.close(handle)
    if not _FORM.fullmatch(text):
        raise ChaosMMError(f"token file {path} holds no token (32-256 of A-Z a-z 0-9 _ -); remove it to have one made")
    return text


def load_or_create_token(path: Path | None = None) -> str:
    """The token, made when there is none; of several points starting at once one makes it and all read the same."""
    path = path or token_path()
    if not path.is_symlink() and not path.exists():
        _create(path)
    return read_token(path)


def proof(token: str, nonce: str) -> str:
    """HMAC-SHA-256 by which a point shows that it knows the token before a client hands it over."""
    return hmac.new(token.encode(), b"chaos_mm.point:" + nonce.encode(), "sha256").hexdigest()


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(secrets.token_urlsafe(32) + "\n")
        # A link is atomic and fails when another point was first, so nobody ever reads half a token.
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ChaosMMError(f"token file {path} is not a plain file")
    if found.st_uid != os.getuid():
        raise ChaosMMError(f"token file {path} belongs to user {found.st_uid}, not to you ({os.getuid()})")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ChaosMMError(f"token file {path} is open to others (mode {mode:o}); chmod 600 it and rotate the token")
