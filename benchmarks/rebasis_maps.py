"""Maps of the package rebasis, which needs an interpreter of its own: run by `benchmarks.learning`.

    PYTHON rebasis_maps.py PAIRS.npz MAPS.npz

PAIRS has `target` and `source`, (n, dim) float32 of the same items, and `asked`, (q, target dim) float32. MAPS gets the
queries as each map that can be fitted moves them into the source's space, by its name.
"""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    from rebasis.core import CPU_ONLY_METHODS, fit_candidates  # type: ignore[import-not-found]

    given, made = sys.argv[1:]
    with np.load(given) as pairs:
        fitted = fit_candidates(pairs["target"], pairs["source"], methods=sorted(CPU_ONLY_METHODS))
        asked = pairs["asked"] / np.linalg.norm(pairs["asked"], axis=1, keepdims=True)
        np.savez(made, **{one.method: one.adapter.apply(asked.astype(np.float32)) for one in fitted})


if __name__ == "__main__":
    main()
