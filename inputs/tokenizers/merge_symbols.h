// SPDX-License-Identifier: Apache-2.0
// The loop of byte-pair encoding: of all neighbours that merge, those of the lowest rank do, the
// first of them first; until none does.
#pragma once

#include <cstdint>
#include <vector>

#include "inputs/tokenizers/pair_table.h"

namespace tessera {

// A merge of the symbol at `position` with the one after it, to be done by rank, then position.
struct QueuedMerge {
  int32_t rank = 0;
  int32_t position = 0;
  int32_t made = 0;
};

// What calls on one thread reuse.
struct MergeScratch {
  std::vector<int32_t> symbols;  // In and out.
  std::vector<int32_t> previous;
  std::vector<int32_t> next;
  std::vector<PairTable::Merge> merges;
  std::vector<QueuedMerge> queue;
};

void merge_symbols(const PairTable& merges, MergeScratch* scratch);

}  // namespace tessera
