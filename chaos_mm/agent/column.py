"""What one worker says of one lease on the shared page."""

from dataclasses import dataclass

from chaos_mm.agent.layout import Column

__all__ = ["LeaseColumn"]


@dataclass(frozen=True)
class LeaseColumn:
    """One lease in one worker."""

    words: memoryview
    at: int

    def get(self, word: int) -> int:
        """A word of ``Column``."""
        value: int = self.words[self.at + word]
        return value

    def set(self, word: int, value: int) -> None:
        """Write it."""
        self.words[self.at + word] = value

    def add(self, word: int, count: int = 1) -> None:
        """Add to it; the caller holds whatever keeps its own threads apart."""
        self.words[self.at + word] += count

    def clear(self) -> None:
        """Forget the last lease; the state goes first, so that nobody reads the rest as another's."""
        for word in range(Column.COUNT):
            self.words[self.at + word] = 0

    @property
    def serial(self) -> int:
        """Which lease the column speaks of; 0: none."""
        return self.get(Column.STATE) >> 3

    @property
    def state(self) -> int:
        """LIVE, STRUCK, CLEAN, FAILED or UNTOUCHED."""
        return self.get(Column.STATE) & 7

    def put_state(self, serial: int, state: int) -> None:
        """Write both at once."""
        self.set(Column.STATE, serial << 3 | state)
