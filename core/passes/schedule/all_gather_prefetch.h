// SPDX-License-Identifier: Apache-2.0
// The launches that bring weights to where they are used: collectives on persistent values, with
// the casts and slices before them. They depend on nothing the step computes, so they may run at
// any time before. For overlap.h, which decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/passes/schedule/flatten.h"

namespace tessera {

class WeightGathers {
 public:
  explicit WeightGathers(const FlatProgram& program);

  // Whether launch `i` is computed from persistent values alone, by cheap ops and collectives.
  bool is_early(size_t i) const { return early_[i]; }
  // Whether it is the last collective of such a chain.
  bool is_gather(size_t i) const { return first_use_[i] != kNever; }

  // All launches in an order in which gathers, with what they need, run as early as possible with
  // at most `budget` gathered bytes that no launch has used yet; the others as they stand. Gathers
  // keep their order.
  std::vector<size_t> order(int64_t budget) const;

 private:
  static constexpr size_t kNever = static_cast<size_t>(-1);

  // The launch before which each gather in turn is put; no later than it stood.
  std::vector<size_t> places(const std::vector<size_t>& gathers, int64_t budget) const;

  const FlatProgram& program_;
  std::vector<bool> early_;
  std::vector<std::vector<size_t>> made_by_;  // Of early launches: those whose results they read.
  std::vector<size_t> first_use_;             // Of gathers: the first launch that reads it.
};

}  // namespace tessera
