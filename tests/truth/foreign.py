"""Activities of somebody else's extension, as experiments of the truth table name them: ``tests.truth.foreign``.

They run in the ``chaos`` process. The standard library only, since the newest toolkit's environment has little else.
"""

import ctypes
import threading
import time
from typing import Any

_asked = 0
_VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "none": None,
    "empty list": [],
    "bytes": b"0.5",
    "set": {0.5},
    "wrong": 7.0,
}


def later(value: str) -> Any:
    """0.5 when asked for the first time, in the gate; then the value of that name, or an exception for "raises"."""
    global _asked
    _asked += 1
    return 0.5 if _asked == 1 else at_once(value)


def at_once(value: str) -> Any:
    """The value of that name; an exception for "raises"."""
    if value == "raises":
        raise ConnectionError("the service is gone")
    return _VALUES[value]


def works() -> str:
    """An action that does whatever it does, and well."""
    return "done"


def fails() -> None:
    """An action that cannot be done."""
    raise RuntimeError("this cannot be done")


def leaves() -> None:
    """An action that ends its thread, and says nothing."""
    raise SystemExit(0)


def sleeps(seconds: float) -> float:
    """An action that takes its time in the interpreter, deaf to everything but exceptions."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    return seconds


def kills_the_guard() -> str:
    """Raise SystemExit inside the guard's thread, as an error nobody thought of would."""
    guard = next(one for one in threading.enumerate() if one.name.startswith("chaos-mm-guard"))
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(guard.ident or 0), ctypes.py_object(SystemExit))
    guard.join(10.0)
    return "gone" if not guard.is_alive() else "it lives"
