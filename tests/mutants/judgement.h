// SPDX-License-Identifier: Apache-2.0
// Judges mutants: by the type rules and the verifier, then by runs in f64 that are compared with
// those of the programs without the change, as the campaign compares meshes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/mutants/mutant.h"

namespace tessera {

enum class Outcome { kRefused, kCaught, kEquivalent, kSurvived };
std::string_view outcome_name(Outcome outcome);  // "refused", …

struct Judgement {
  Outcome outcome = Outcome::kSurvived;
  std::string text;  // A message, the number that differs, or the reason why none does.
};

// Draws of weights and batches that a mutant must pass to be equivalent.
inline constexpr int64_t kDraws = 20;
// What the campaign allows with a margin for the size of a sum: far below the effect of any change.
inline constexpr double kCaughtAbove = 1e-9;

class Judge {
 public:
  // Fewer draws are enough where none may survive.
  explicit Judge(const LoweredStep& step, int64_t draws = kDraws)
      : step_(step), expected_(static_cast<size_t>(draws)) {}
  Judgement on(const Mutant& mutant);

 private:
  const RunNumbers& expected(int64_t draw);

  const LoweredStep& step_;
  std::vector<RunNumbers> expected_;  // By draw; empty: not run.
  std::unique_ptr<LoweredRun> unchanged_;
};

// Why a mutant that changes no bit of 20 draws is equivalent; "": no reason is known. The reasons
// are a table in equivalence.cc.
std::string reason_for(const LoweredStep& step, const Mutant& mutant);

}  // namespace tessera
