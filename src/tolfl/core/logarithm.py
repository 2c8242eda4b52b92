"""Logarithms and arcsines by arithmetic and square roots alone: the same bits on every processor.

NumPy's own differ in the last bit between processors. Coefficients and form are those of FreeBSD's e_log.c and e_asin.c
(Sun Microsystems, 1993), off by less than one unit in the last place; the kernel's logarithm is the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TERMS = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_HALF_ROOT = 0.70710678118654752440
_ARC_ABOVE = (
    1.66666666666666657415e-01,
    -3.25565818622400915405e-01,
    2.01212532134862925881e-01,
    -4.00555345006794114027e-02,
    7.91534994289814532176e-04,
    3.47933107596021167570e-05,
)
_ARC_BELOW = (
    1.0,
    -2.40339491173441421878e00,
    2.02094576023350569471e00,
    -6.88283971605453293030e-01,
    7.70381505559019352791e-02,
)


def log(x: ArrayLike) -> NDArray[np.float64]:
    """Return the natural logarithms of positive finite numbers.

    >>> log([1.0, np.e, 2.0**-1074]).round(12).tolist()
    [0.0, 1.0, -744.440071921381]
    """
    m, exponent = np.frexp(np.asarray(x, np.float64))
    is_low = m < _HALF_ROOT
    k = exponent.astype(np.float64) - is_low
    f = np.where(is_low, m + m, m) - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = _polynomial(_TERMS, z)
    half = 0.5 * f * f
    return np.asarray(k * _LN2_HIGH - ((half - (s * (half + z * r) + k * _LN2_LOW)) - f))


def exp(x: ArrayLike) -> NDArray[np.float64]:
    """Return the exponentials of numbers from -700 to 700.

    >>> exp([0.0, 1.0, log(7.0)]).round(12).tolist()
    [1.0, 2.718281828459, 7.0]
    """
    x = np.asarray(x, np.float64)
    k = np.rint(x / (_LN2_HIGH + _LN2_LOW))
    # Below 0.35: fifteen terms of the series are more than float64 can tell apart.
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = np.ones_like(r)
    for n in range(15, 0, -1):
        total = 1.0 + r * total / n
    return np.asarray(np.ldexp(total, k.astype(np.int64)))


def arcsine(x: ArrayLike) -> NDArray[np.float64]:
    """Return the arcsines of numbers from 0 to 1.

    >>> arcsine([0.0, 0.5, 1.0]).round(12).tolist()
    [0.0, 0.523598775598, 1.570796326795]
    """
    x = np.asarray(x, np.float64)
    is_high = x > 0.5
    z = np.where(is_high, (1.0 - x) / 2, x * x)
    s = np.where(is_high, np.sqrt(z), x)
    arc = s + s * (z * _polynomial(_ARC_ABOVE, z) / _polynomial(_ARC_BELOW, z))
    return np.where(is_high, np.pi / 2 - 2 * arc, arc)


def _polynomial(terms: tuple[float, ...], z: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.full_like(z, terms[-1])
    for term in terms[-2::-1]:
        total = term + z * total
    return total
