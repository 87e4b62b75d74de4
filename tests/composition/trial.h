// SPDX-License-Identifier: Apache-2.0
// Trains a composition for some steps on its mesh and on one device, and compares every number: the
// loss, metrics, the global norm, the norm of each gradient, each weight and each optimizer slot.
#pragma once

#include <optional>
#include <string>

#include "tests/composition/composition.h"
#include "tests/composition/steps.h"

namespace tessera {

// The largest difference between two runs.
struct Difference {
  // ‖difference‖ / ‖expected‖; for arrays that are small beside others of their kind, relative to a
  // thousandth of the largest norm.
  double error = 0.0;
  std::string name;  // Name of the number.
};
// Initial weights must have the same bits.
Difference difference(const RunNumbers& got, const RunNumbers& expected);

// A composition on its mesh against one device.
struct Verdict {
  std::optional<std::string> refusal;  // Why it was not run, without names and numbers.
  std::optional<std::string> error;    // Message of an Error after tracing.
  Difference f64;
  Difference standard;     // Unless only f64 is compared.
  double tolerance = 0.0;  // For `standard`.
  uint32_t bits = 0;       // A checksum of all numbers of both runs in f64.
  bool fails() const;
  std::string text() const;
};

// What differs only in names and numbers is one kind of refusal.
std::string kind_of_refusal(const std::string& message);

// For rounding errors of f64 after two steps.
inline constexpr double kF64Tolerance = 1e-12;

enum class Compared { kF64, kBoth };
Verdict verdict_on(const Composition& composition, Compared compared = Compared::kBoth);

}  // namespace tessera
