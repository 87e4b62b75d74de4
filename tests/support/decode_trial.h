// SPDX-License-Identifier: Apache-2.0
// A small model that decodes on a mesh of CPU devices, and the same model's logits from a forward
// pass over whole rows on one device, which incremental decoding must reproduce.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/executor.h"
#include "tasks/task/base_task.h"

namespace tessera {

using TokenRows = std::vector<std::vector<int32_t>>;

class DecodeTrial {
 public:
  // `chunks`: the allowed numbers of new tokens per call; each has its own program. Weights are
  // drawn from the task's seed.
  DecodeTrial(const BaseTask& task, const DecodeSetting& setting,
              const std::vector<int64_t>& chunks, int threads = 1);

  // Takes the new tokens of each row (at most `chunk`; a row without tokens is idle, and
  // unspecified values are written at its position). Returns each row's logits for the token after
  // its last one.
  std::vector<std::vector<float>> take(int64_t chunk, const TokenRows& tokens);
  // The number of tokens that a row has so far.
  int64_t length(size_t row) const { return lengths_[row]; }
  void forget();  // Resets the rows to zero tokens without clearing the cache.
  void reorder(const std::vector<int32_t>& parents);  // Each is a row of the same prompt.
  Executor& executor() { return *executor_; }
  int program(int64_t chunk) const { return programs_.at(chunk); }

 private:
  DecodeSetting setting_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Executor> executor_;
  std::map<int64_t, int> programs_;
  int reorder_ = 0;
  std::vector<int64_t> lengths_;
};

// The logits f32["seq vocab"] of each row, from one forward pass over `seq` positions on one
// device.
std::vector<std::vector<float>> whole_logits(const BaseTask& task, int64_t seq,
                                             const TokenRows& rows);

}  // namespace tessera
