"""What a lease did in one process, gathered until there is room in the ring: nothing is written on the hot path."""

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from chaos_mm.agent.layout import RECORD_BYTES
from chaos_mm.core.lease import Tally

__all__ = ["Ledger", "finite"]
_SITES: Final = 256
_REQUESTS: Final = 256
_FIGURES: Final = 64
_NOTES: Final = 256
_PER_RECORD: Final = 4  # entries of a record: 4 names of up to 80 characters fit with room to spare
_NAME: Final = 80


class Ledger:
    """Sites, figures, struck requests and notes since the last flush; bounded, what does not fit is counted."""

    def __init__(self, serial: int) -> None:
        """``serial`` of the lease."""
        self.serial = serial
        self.lost = 0
        self._sites: dict[str, int] = {}
        self._requests: dict[str, int] = {}
        self._figures: dict[str, Tally] = {}
        self._records: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def strike(self, request: str, site: str, figures: Mapping[str, float]) -> None:
        """One strike: where, at whom, and what it came to; "" where nobody or no place is meant."""
        with self._lock:
            if site:
                self._count(self._sites, site, _SITES)
            if request:
                self._count(self._requests, request, _REQUESTS)
            for name, value in finite(figures).items():
                self._figure(name[:_NAME], value)

    def note(self, kind: str, value: Any) -> None:
        """A detail of another kind: strict JSON that a record of the ring takes, else it is counted as lost."""
        with self._lock:
            self._put(kind, value)

    def flush(self, push: Callable[[Mapping[str, Any]], bool]) -> int:
        """Write what there is; what finds no room stays for the next time. How many details are lost for good."""
        with self._lock:
            for _ in range(2):  # notes that wait come first; what was counted meanwhile goes with the second round
                self._gather()
                while self._records and push(self._records[0]):
                    del self._records[0]
            lost, self.lost = self.lost, 0
            return lost

    @property
    def waiting(self) -> int:
        """Details that found no room yet."""
        return len(self._sites) + len(self._requests) + len(self._figures) + len(self._records)

    def _gather(self) -> None:
        if self._records:  # the ring was full: go on counting in place, so that memory stays bounded
            return
        for kind, found in (("sites", self._sites), ("requests", self._requests)):
            for chunk in _chunks(found):
                self._put_chunk(kind, chunk)
            found.clear()
        tallies = {name: [t.count, t.total, t.low, t.high] for name, t in self._figures.items()}
        self._figures.clear()
        for chunk in _chunks(tallies):
            self._put_chunk("figures", chunk)

    def _put_chunk(self, kind: str, chunk: Mapping[str, Any]) -> None:
        """Several entries in one record, or one each where their names are long."""
        if _fits({"s": self.serial, "k": kind, "v": chunk}):
            self._records.append({"s": self.serial, "k": kind, "v": chunk})
            return
        for name, value in chunk.items():
            self._put(kind, {name: value})

    def _put(self, kind: str, value: Any) -> None:
        record = {"s": self.serial, "k": kind, "v": value}
        if len(self._records) >= _NOTES or not _fits(record):
            self.lost += 1
        else:
            self._records.append(record)

    def _count(self, found: dict[str, int], name: str, most: int) -> None:
        name = name[:_NAME]
        if name not in found and len(found) >= most:
            self.lost += 1
            return
        found[name] = found.get(name, 0) + 1

    def _figure(self, name: str, value: float) -> None:
        if name not in self._figures and len(self._figures) >= _FIGURES:
            self.lost += 1
            return
        self._figures.setdefault(name, Tally()).add(value)


def finite(figures: Mapping[str, Any]) -> dict[str, float]:
    """The finite figures as floats; for each other one ``nonfinite_<name>`` is 1."""
    found = {}
    for name, value in figures.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan  # a fault may come from a third party: what is no number is not finite either
        found.update({str(name): number} if math.isfinite(number) else {f"nonfinite_{name}": 1.0})
    return found


def _fits(record: Mapping[str, Any]) -> bool:
    try:
        return len(json.dumps(record, allow_nan=False, separators=(",", ":"))) <= RECORD_BYTES - 8
    except (TypeError, ValueError, RecursionError):
        return False  # no JSON at all


def _chunks(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = list(found)
    for start in range(0, len(names), _PER_RECORD):
        yield {name: found[name] for name in names[start : start + _PER_RECORD]}
