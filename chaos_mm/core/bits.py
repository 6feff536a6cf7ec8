"""Number formats that key-value caches are kept in, and what each of their bits means.

A format is sign, exponent, mantissa from the top bit down (IEEE 754-2019; bfloat16; E4M3 and E5M2 as in "FP8 formats
for deep learning", Micikevicius et al., 2022); int8 is two's complement and has no exponent. One and the same bit
number is another severity in each of them, so faults name classes: what a flip in a class does is alike everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from chaos_mm.core.errors import InvalidParams

__all__ = ["FORMATS", "BitClass", "Format", "class_bits", "format_of"]

BitClass = Literal["mantissa_low", "mantissa_high", "exponent_low", "exponent_mid", "exponent_top", "sign"]


@dataclass(frozen=True)
class Format:
    """``width`` = 1 sign bit + ``exponent`` + ``mantissa``; ``sister``: another format of the same width.

    ``integer``: the integer type of that width through which its bits are read; ``infinity``, ``nan``: whether it has
    such a value.
    """

    name: str
    exponent: int
    mantissa: int
    integer: str
    sister: str
    infinity: bool = True
    nan: bool = True

    @property
    def width(self) -> int:
        """Bits of one value."""
        return 1 + self.exponent + self.mantissa

    @property
    def nonfinite_bits(self) -> int:
        """The bits that are all set in what is infinite or not a number, and in nothing else; 0 where nothing is."""
        if not self.nan:
            return 0
        exponent = ((1 << self.exponent) - 1) << self.mantissa
        return exponent if self.infinity else exponent | ((1 << self.mantissa) - 1)

    def classes(self) -> Mapping[str, range]:
        """The bits of each class that this format has, lowest bit 0.

        The mantissa is cut in halves, the odd bit to the low one; the top exponent bit stands alone, since it alone
        makes a value of ordinary size infinite, not a number, or huge; what is left of the exponent is cut in halves,
        the odd bit to the middle.
        """
        half, top, low = (self.mantissa + 1) // 2, self.mantissa + self.exponent - 1, (self.exponent - 1) // 2
        found = {"mantissa_low": range(half), "mantissa_high": range(half, self.mantissa)}
        if self.exponent:
            found["exponent_low"] = range(self.mantissa, self.mantissa + low)
            found["exponent_mid"] = range(self.mantissa + low, top)
            found["exponent_top"] = range(top, top + 1)
        found["sign"] = range(self.width - 1, self.width)
        return found


_ALL = (
    Format("float32", 8, 23, "int32", "int32"),
    Format("float16", 5, 10, "int16", "bfloat16"),
    Format("bfloat16", 8, 7, "int16", "float16"),
    Format("float8_e4m3fn", 4, 3, "uint8", "float8_e5m2", infinity=False),
    Format("float8_e5m2", 5, 2, "uint8", "float8_e4m3fn"),
    Format("int8", 0, 7, "int8", "float8_e4m3fn", infinity=False, nan=False),
)
FORMATS: Final[Mapping[str, Format]] = MappingProxyType({each.name: each for each in _ALL})


def format_of(dtype: Any) -> Format:
    """The format of a torch dtype, or of its name. Raises InvalidParams naming it and those there are."""
    name = str(dtype).removeprefix("torch.")
    if name not in FORMATS:
        raise InvalidParams(f"a cache of {name} is not supported; the formats known are {', '.join(FORMATS)}")
    return FORMATS[name]


def class_bits(dtype: Any, bit_class: str) -> range:
    """The bits of a class, such as ``range(7, 10)``. Raises InvalidParams naming the format and what it has."""
    found = format_of(dtype)
    if bit_class not in found.classes():
        known = "" if bit_class in get_args(BitClass) else f"; no format has {bit_class!r}"
        raise InvalidParams(f"{found.name} has no bit class {bit_class}; it has {', '.join(found.classes())}{known}")
    return found.classes()[bit_class]
