"""The few distributions that comparing needs: Student's t and chi squared. scipy is not worth its 100 MB for them."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

TINY = 1e-300


def t_two_sided(t: float, df: float) -> float:
    """Probability that |T| is at least |t| with `df` degrees of freedom: I_x(df/2, 1/2), x = df/(df + t^2)."""
    if not math.isfinite(t):
        return 0.0 if math.isinf(t) else float("nan")
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


@functools.lru_cache(maxsize=1024)
def t_quantile(probability: float, df: float) -> float:
    """The t that |T| stays below with `probability` (0.95: the factor of a 95% interval)."""
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        if 1 - t_two_sided(middle, df) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def chi_squared_above(value: float, df: int) -> float:
    """Probability that chi squared is at least `value`; Wilson and Hilferty's cube root, good to about 0.01."""
    if df < 1 or value <= 0:
        return 1.0
    spread = 2 / (9 * df)
    return 1 - NormalDist().cdf(((value / df) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta by Lentz's continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = (
        math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x))
        / a
    )
    c, d = 1.0, 1.0 / max(1 - (a + b) * x / (a + 1), TINY)
    found = d
    for m in range(1, 300):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away(1 + factor * d)
            c = _away(1 + factor / c)
            found *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * found


def _away(value: float) -> float:
    return value if abs(value) > TINY else TINY
