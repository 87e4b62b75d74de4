// SPDX-License-Identifier: Apache-2.0
// Detects a run that reaches its last step but has failed: most steps were skipped, or its
// evaluation has no finite loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

// Whether more than half of the `steps` of the whole run (those before a resume included) were
// skipped. Known as soon as that many are skipped; a run that ends early passes the steps it took.
bool most_are_skipped(int64_t skipped, int64_t steps);

// The first dataset whose loss in an EvalReport is not finite although labels were scored, as
// "eval/validation/loss is nan"; nullopt if all are finite. User metrics and datasets without
// scored labels may be NaN.
std::optional<std::string> undefined_loss(const std::map<std::string, double>& metrics);

}  // namespace tessera
