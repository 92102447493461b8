"""Sine, tangent, their inverses and hyperbolic relatives by the rational approximations of Go.

The C library rounds some results otherwise in the last place. A value that becomes a label, a
comparison for equality, or a difference of nearly equal values would show that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_PI = math.pi
_EIGHTH_PARTS = (7.85398125648498535156e-1, 3.77489470793079817668e-8, 2.69515142907905952645e-15)
_LARGE = float(1 << 29)  # from here on the plain reduction to an eighth of a turn is not exact
_SIN = (
    1.58962301576546568060e-10,
    -2.50507477628578072866e-8,
    2.75573136213857245213e-6,
    -1.98412698295895385996e-4,
    8.33333333332211858878e-3,
    -1.66666666666666307295e-1,
)
_COS = (
    -1.13585365213876817300e-11,
    2.08757008419747316778e-9,
    -2.75573141792967388112e-7,
    2.48015872888517045348e-5,
    -1.38888888888730564116e-3,
    4.16666666666665929218e-2,
)
_TAN = (-1.30936939181383777646e4, 1.15351664838587416140e6, -1.79565251976484877988e7)
_TAN_BELOW = (
    1.36812963470692954678e4,
    -1.32089234440210967447e6,
    2.50083801823357915839e7,
    -5.38695755929454629881e7,
)
_ATAN = (
    -8.750608600031904122785e-01,
    -1.615753718733365076637e01,
    -7.500855792314704667340e01,
    -1.228866684490136173410e02,
    -6.485021904942025371773e01,
)
_ATAN_BELOW = (
    2.485846490142306297962e01,
    1.650270098316988542046e02,
    4.328810604912902668951e02,
    4.853903996359136964868e02,
    1.945506571482613964425e02,
)
_SINH = (
    -0.2630563213397497062819489e2,
    -0.2894211355989563807284660366e4,
    -0.8991272022039509355398013511e5,
    -0.6307673640497716991184787251e6,
)
_SINH_BELOW = (
    -0.173678953558233699533450911e3,
    0.1521517378790019070696485176e5,
    -0.6307673640497716991212077277e6,
)
_TANH = (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
_TANH_BELOW = (1.12811678491631932401e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
_REST_OF_HALF_PI = 6.123233995736765886130e-17
_TAN_3_EIGHTHS = 2.41421356237309504880


def _polynomial(x: float, total: float, coefficients: Sequence[float]) -> float:
    for each in coefficients:
        total = total * x + each
    return total


def _octant(x: float) -> tuple[int, float]:
    """Which eighth of the turn ``x`` > 0 lies in, made even, and the rest."""
    whole = int(x * (4 / _PI))
    whole += whole & 1
    a, b, c = _EIGHTH_PARTS
    return whole & 7, ((x - whole * a) - whole * b) - whole * c


def _wave(rest: float, of_cosine: bool) -> float:
    square = rest * rest
    if of_cosine:
        return 1.0 - 0.5 * square + square * square * _polynomial(square, _COS[0], _COS[1:])
    return rest + rest * square * _polynomial(square, _SIN[0], _SIN[1:])


def sin(x: float) -> float:
    """The sine; NaN of an infinity."""
    if x == 0 or x - x != 0:
        return x if x == 0 else math.nan
    if abs(x) >= _LARGE:
        return math.sin(x)
    octant, rest = _octant(abs(x))
    value = _wave(rest, octant in (2, 6))
    return -value if (x < 0) != (octant > 3) else value


def cos(x: float) -> float:
    """The cosine; NaN of an infinity."""
    if x - x != 0:
        return math.nan
    if abs(x) >= _LARGE:
        return math.cos(x)
    octant, rest = _octant(abs(x))
    value = _wave(rest, octant in (0, 4))
    return -value if octant in (2, 4) else value


def tan(x: float) -> float:
    """The tangent; NaN of an infinity."""
    if x == 0 or x - x != 0:
        return x if x == 0 else math.nan
    if abs(x) >= _LARGE:
        return math.tan(x)
    octant, value = _octant(abs(x))
    square = value * value
    if square > 1e-14:
        above = square * _polynomial(square, _TAN[0], _TAN[1:])
        value += value * (above / _polynomial(square, 1.0, _TAN_BELOW))
    if octant & 2:
        value = -1 / value
    return -value if x < 0 else value


def _arc(x: float) -> float:
    square = x * x
    above = square * _polynomial(square, _ATAN[0], _ATAN[1:])
    return x * (above / _polynomial(square, 1.0, _ATAN_BELOW)) + x


def _positive_arc(x: float) -> float:
    if x <= 0.66:
        return _arc(x)
    if x > _TAN_3_EIGHTHS:
        return _PI / 2 - _arc(1 / x) + _REST_OF_HALF_PI
    return _PI / 4 + _arc((x - 1) / (x + 1)) + 0.5 * _REST_OF_HALF_PI


def atan(x: float) -> float:
    """The angle with this tangent."""
    if x == 0:
        return x
    return _positive_arc(x) if x > 0 else -_positive_arc(-x)


def atan2(y: float, x: float) -> float:
    """The angle of the point (x, y) in radians."""
    if y == 0 or x == 0 or y - y != 0 or x - x != 0:
        return math.atan2(y, x)
    ratio = y / x
    angle = atan(ratio)
    if x < 0:
        return angle + _PI if angle <= 0 else angle - _PI
    return angle


def asin(x: float) -> float:
    """The angle with this sine; NaN outside of -1 to 1."""
    if x == 0:
        return x
    size = abs(x)
    if not size <= 1:
        return math.nan
    other = math.sqrt(1 - size * size)
    angle = _PI / 2 - _positive_arc(other / size) if size > 0.7 else _positive_arc(size / other)
    return -angle if x < 0 else angle


def acos(x: float) -> float:
    """The angle with this cosine; NaN outside of -1 to 1."""
    return _PI / 2 - asin(x)


def sinh(x: float) -> float:
    """The hyperbolic sine, infinite where its exponential is."""
    size = -x if x < 0 else x  # keeps the sign of a zero
    if size <= 0.5:
        square = size * size
        value = _polynomial(square, _SINH[0], _SINH[1:]) * size
        value /= _polynomial(square, 1.0, _SINH_BELOW)
    elif size <= 21:
        value = (math.exp(size) - 1 / math.exp(size)) * 0.5
    else:
        value = _exp(size) * 0.5
    return -value if x < 0 else value


def cosh(x: float) -> float:
    """The hyperbolic cosine, infinite where its exponential is."""
    size = abs(x)
    if size > 21:
        return _exp(size) * 0.5
    return (math.exp(size) + 1 / math.exp(size)) * 0.5


def tanh(x: float) -> float:
    """The hyperbolic tangent."""
    size = abs(x)
    if x == 0 or not size < 44.014845965556528147:
        return x if x == 0 or x != x else math.copysign(1.0, x)  # noqa: PLR0124
    if size >= 0.625:
        return math.copysign(1 - 2 / (math.exp(2 * size) + 1), x)
    square = x * x
    above = _polynomial(square, _TANH[0], _TANH[1:])
    return x + x * square * above / _polynomial(square, 1.0, _TANH_BELOW)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
