"""Arithmetic as Go does it: results of IEEE 754, never an exception.

Python raises where Go gives Inf or NaN, and its C library rounds some functions otherwise; the
algorithms that would differ visibly (power, logarithms to other bases) follow Go's order of steps.
Only numbers live here: no vectors, no labels.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from . import trigonometry

INF = math.inf
NAN = math.nan
_PER_LN2 = 1.442695040888963407359924681001892137
_LOG10_OF_2 = 0.301029995663981195213738894724493027
_WORD = 1 << 63

Unary = Callable[[float], float]


def div(a: float, b: float) -> float:
    """a / b; x/0 is Inf with the sign of both, 0/0 is NaN."""
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0 or a != a:
            return NAN
        return math.copysign(INF, a) * math.copysign(1.0, b)


def mod(a: float, b: float) -> float:
    """The remainder with the sign of ``a``; NaN for b = 0 or infinite a."""
    try:
        return math.fmod(a, b)
    except ValueError:
        return NAN


def power(x: float, y: float) -> float:
    """x to the power y by repeated squaring of the mantissa, as Go does."""
    if y == 0 or x == 1:
        return 1.0
    if y == 1:
        return x
    if x - x != 0 or y - y != 0 or x == 0:
        return _limit_power(x, y)
    if abs(y) == 0.5:
        return sqrt(x) if y > 0 else 1 / sqrt(x)
    fraction, whole = math.modf(abs(y))
    if fraction and x < 0:
        return NAN
    if whole >= _WORD:
        if x == -1:
            return 1.0
        return 0.0 if (abs(x) < 1) == (y > 0) else INF
    return _squarings(x, whole, fraction, y < 0)


def _limit_power(x: float, y: float) -> float:
    """The power of zero, infinite or undefined numbers."""
    try:
        return math.pow(x, y)
    except ValueError:  # zero to a negative power
        odd = abs(y) < 1 << 53 and y % 2 == 1
        return math.copysign(INF, x) if odd else INF


def _squarings(x: float, whole: float, fraction: float, inverse: bool) -> float:
    result, exponent = 1.0, 0
    if fraction:
        if fraction > 0.5:
            fraction -= 1
            whole += 1
        result = exp(fraction * log(x))
    mantissa, shift = math.frexp(x)
    count = int(whole)
    while count:
        if not -4096 <= shift <= 4096:
            exponent += shift
            break
        if count & 1:
            result *= mantissa
            exponent += shift
        mantissa *= mantissa
        shift *= 2
        if mantissa < 0.5:
            mantissa += mantissa
            shift -= 1
        count >>= 1
    if inverse:
        result, exponent = 1 / result, -exponent
    try:
        return math.ldexp(result, exponent)
    except OverflowError:
        return math.copysign(INF, result)


def larger(a: float, b: float) -> float:
    """Go's math.Max: +Inf wins over NaN, NaN over numbers, +0 over -0."""
    if INF in (a, b):
        return INF
    if a != a or b != b:
        return NAN
    if a == 0 and b == 0:
        return b if math.copysign(1.0, a) < 0 else a
    return a if a > b else b


def smaller(a: float, b: float) -> float:
    """Go's math.Min: -Inf wins over NaN, NaN over numbers, -0 over +0."""
    return -larger(-a, -b)


def floor(x: float) -> float:
    """The greatest whole number not above x; keeps Inf, NaN and the sign of zero."""
    if x != x or x - x != 0:
        return x
    return float(math.floor(x)) or math.copysign(0.0, x)


def ceil(x: float) -> float:
    """The least whole number not below x; keeps Inf, NaN and the sign of zero."""
    return -floor(-x)


def exp(x: float) -> float:
    """e to the power x."""
    try:
        return math.exp(x)
    except OverflowError:
        return INF


def log(x: float) -> float:
    """The natural logarithm; -Inf at 0, NaN below."""
    if x > 0:
        return math.log(x)
    return -INF if x == 0 else NAN


def log2(x: float) -> float:
    """The binary logarithm, exact for powers of two."""
    mantissa, exponent = math.frexp(x)
    if mantissa == 0.5:
        return float(exponent - 1)
    return log(mantissa) * _PER_LN2 + exponent


def log10(x: float) -> float:
    """The decimal logarithm, by way of the binary one."""
    return log2(x) * _LOG10_OF_2


def sqrt(x: float) -> float:
    """The square root; NaN below 0."""
    return math.sqrt(x) if x >= 0 else NAN


def sign(x: float) -> float:
    """-1, 1, or x itself where it is zero or NaN."""
    return -1.0 if x < 0 else 1.0 if x > 0 else x


def decimal(x: float) -> str:
    """A number as text without an exponent, in the fewest digits that read back the same."""
    if x != x:
        return "NaN"
    if x in (INF, -INF):
        return "+Inf" if x > 0 else "-Inf"
    text = format(Decimal(repr(x)), "f")
    return text.removesuffix(".0")


def acosh(x: float) -> float:
    """The inverse hyperbolic cosine; NaN below 1."""
    return math.acosh(x) if x >= 1 else NAN


def atanh(x: float) -> float:
    """The inverse hyperbolic tangent; infinite at -1 and 1."""
    if abs(x) == 1:
        return math.copysign(INF, x)
    return math.atanh(x) if -1 < x < 1 else NAN


FUNCTIONS: dict[str, Unary] = {
    "abs": abs,
    "acos": trigonometry.acos,
    "acosh": acosh,
    "asin": trigonometry.asin,
    "asinh": math.asinh,
    "atan": trigonometry.atan,
    "atanh": atanh,
    "ceil": ceil,
    "cos": trigonometry.cos,
    "cosh": trigonometry.cosh,
    "deg": lambda x: x * 180 / math.pi,
    "exp": exp,
    "floor": floor,
    "ln": log,
    "log10": log10,
    "log2": log2,
    "rad": lambda x: x * math.pi / 180,
    "sgn": sign,
    "sin": trigonometry.sin,
    "sinh": trigonometry.sinh,
    "sqrt": sqrt,
    "tan": trigonometry.tan,
    "tanh": trigonometry.tanh,
}
"""The functions that map each element of a vector by its value alone."""
