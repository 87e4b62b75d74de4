// SPDX-License-Identifier: Apache-2.0
// A step that every process of a run takes and that counts only if all of them could: each does its
// part, and none goes on before all have.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// Does this process's part, `work`, and returns what each process's gave, by rank. If any failed,
// every process throws an Error that says which, and why.
template <typename Work>
std::vector<std::string> together(ProcessGroup& processes, std::string_view what, Work work) {
  std::string outcome;
  try {
    outcome = fmt::format("+{}", work());
  } catch (const std::exception& error) {
    outcome = fmt::format("-{}", error_text(error));
  }
  std::vector<std::string> outcomes = processes.gather(outcome, what);
  std::string failures;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const bool failed = outcomes[rank].empty() || outcomes[rank][0] == '-';
    outcomes[rank].erase(0, 1);
    if (!failed) continue;
    if (!failures.empty()) failures += "; ";
    if (outcomes.size() > 1) failures += processes.name(static_cast<int>(rank)) + ": ";
    failures += outcomes[rank];
  }
  if (!failures.empty()) fail("{}", failures);
  return outcomes;
}

}  // namespace tessera
