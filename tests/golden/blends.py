#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/blends.txt: which dataset Megatron-core's BlendedDataset chooses for each row.

    python tests/golden/blends.py        (megatron-core with its helpers_cpp, numpy)

A line has the weights and, after a colon, the datasets as digits.
"""
import pathlib

import numpy
from megatron.core.datasets import helpers
from megatron.core.datasets.utils import normalize

ROWS = 3000
BLENDS = [[1], [1, 1], [0.5, 0.3, 0.2], [1, 1, 1], [3, 1, 0.01], [0.1, 0.1, 0.1, 0.7],
          [2.7, 0.31, 1.9, 5.3, 0.07, 11.1, 0.9]]

lines = []
for weights in BLENDS:
    datasets = numpy.zeros(ROWS, dtype=numpy.int16)
    numbers = numpy.zeros(ROWS, dtype=numpy.int64)
    helpers.build_blending_indices(datasets, numbers, numpy.array(normalize(weights)), len(weights),
                                   ROWS, False)
    for source in range(len(weights)):
        of_source = numbers[datasets == source]
        assert (of_source == numpy.arange(len(of_source))).all()
    lines.append(" ".join(map(str, weights)) + ":" + "".join(map(str, datasets)) + "\n")
(pathlib.Path(__file__).parent / "blends.txt").write_text("".join(lines))
