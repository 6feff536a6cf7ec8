"""The rows of the truth table as tests; on the newest toolkit, those where it does not differ are long ones."""

from tests.edge.conftest import heard_signals

__all__ = ["heard_signals"]
