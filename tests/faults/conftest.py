"""Where torch is not installed (the second environment), the faults inside an engine have nothing to act on."""

from importlib.util import find_spec

from chaos_mm.faults import catalogue

collect_ignore = [
    f"test_{fault.name}.py" for fault in catalogue().values() if fault.seam is not None and find_spec("torch") is None
]
