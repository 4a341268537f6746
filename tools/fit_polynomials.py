#!/usr/bin/env python3
"""Fits the polynomials of src/kernels/generic/math-inl.h and prints their coefficients in f32.

Weighted least squares on Chebyshev nodes, reweighted towards the largest error until it is nearly minimax. The weight is
1 / f, so that the error is relative. Needs numpy. Run: python3 tools/fit_polynomials.py
"""
from math import erf, erfc

import numpy as np


def fit(target, low, high, degree, weight, nodes=4001):
    """Coefficients (rising powers) of the fit of target on [low, high], and the largest weighted error."""
    x = np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes) * (high - low) / 2 + (high + low) / 2
    y, w, boost = target(x), weight(x), np.ones(nodes)
    for _ in range(300):
        powers = np.vander(x, degree + 1, increasing=True)
        scale = np.sqrt(boost) * w
        c = np.linalg.lstsq(powers * scale[:, None], y * scale, rcond=None)[0]
        error = np.abs((powers @ c - y) * w)
        boost *= error / error.max() + 1e-3
        boost /= boost.max()
    return c, error.max()


def show(name, result):
    c, error = result
    print(f"{name:8s} error {error:.2e}  " + "  ".join(float(np.float32(v)).hex() for v in c))


def tanh_ratio(u):
    root = np.sqrt(np.maximum(u, 1e-30))
    return np.where(u < 1e-6, -1 / 3 + 2 * u / 15, (np.tanh(root) / root - 1) / np.maximum(u, 1e-30))


def main():
    erf_v, erfc_v = np.vectorize(erf), np.vectorize(erfc)
    half_ln2 = np.log(2) / 2 * 1.0001
    show("exp2", fit(lambda r: np.expm1(r * np.log(2)) / r, -0.5, 0.5, 5, lambda r: np.abs(r) / np.exp2(r)))
    show("exp", fit(lambda r: np.where(np.abs(r) < 1e-4, 0.5 + r / 6, (np.expm1(r) - r) / np.where(r == 0, 1, r * r)),
                    -half_ln2, half_ln2, 5, lambda r: r * r * np.exp(-r) + 1e-30))
    show("tanh", fit(tanh_ratio, 0, 0.625**2, 5, lambda u: u / (1 + u * tanh_ratio(u)) + 1e-30))
    show("erf", fit(lambda u: erf_v(np.sqrt(u)) / np.sqrt(u), 1e-12, 0.875**2, 6, lambda u: np.sqrt(u) / erf_v(np.sqrt(u))))
    show("-ln erfc", fit(lambda x: -np.log(erfc_v(x)), 0.875, 3.95, 7, lambda x: erfc_v(x) / erf_v(x)))


if __name__ == "__main__":
    main()
