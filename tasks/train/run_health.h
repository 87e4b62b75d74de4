// SPDX-License-Identifier: Apache-2.0
// When a run that goes on to its last step has failed all the same: most of its steps were skipped,
// or what it has learnt has no loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

// Whether more than half of a run's steps are skipped, of the `steps` that the whole run has, those
// before a resume included. It can be told as soon as so many were skipped; a run that ends early
// asks with the steps it took.
bool most_are_skipped(int64_t skipped, int64_t steps);

// The first dataset's loss in an EvalReport that is not finite though labels were scored, as
// "eval/validation/loss is nan". A user's own metric may be undefined, and so may the scores of a
// dataset or a source of which nothing was scored.
std::optional<std::string> undefined_loss(const std::map<std::string, double>& metrics);

}  // namespace tessera
