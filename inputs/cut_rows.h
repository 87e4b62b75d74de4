// SPDX-License-Identifier: Apache-2.0
// Cuts the rows of a batch into shorter ones.
#pragma once

#include <cstdint>

#include "inputs/base_input.h"

namespace tessera {

// Cuts each row of ["batch seq"] into rows of `seq_len`, which divides its length. The pieces of a
// row follow each other. In each, segment_ids count from 1, and segment_pos from 0 where the piece
// begins within a document. Arrays of ["batch"] have the row's value in each piece, but label_bytes
// are 0: not known.
void cut_rows(Batch& batch, int64_t seq_len);

}  // namespace tessera
