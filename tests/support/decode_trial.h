// SPDX-License-Identifier: Apache-2.0
// A small model that decodes on a mesh of CPU devices, and the same model's logits of whole rows on
// one device: what decoding token by token must give.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/executor.h"
#include "tasks/base_task.h"

namespace tessera {

using TokenRows = std::vector<std::vector<int32_t>>;

class DecodeTrial {
 public:
  // `chunks`: the numbers of new tokens a call may take; a program each. Weights are drawn from the
  // task's seed.
  DecodeTrial(const BaseTask& task, const DecodeSetting& setting,
              const std::vector<int64_t>& chunks, int threads = 1);

  // New tokens of each row (at most `chunk`; none: it is idle, and writes rubbish where it stands);
  // logits of what follows the last of them, by row.
  std::vector<std::vector<float>> take(int64_t chunk, const TokenRows& tokens);
  // Tokens a row has so far.
  int64_t length(size_t row) const { return lengths_[row]; }
  void forget();  // As if nothing had been taken. The cache keeps what it holds.
  void reorder(const std::vector<int32_t>& parents);
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

// f32["seq vocab"] of each row by the whole forward pass on one device, `seq` positions long.
std::vector<std::vector<float>> whole_logits(const BaseTask& task, int64_t seq,
                                             const TokenRows& rows);

}  // namespace tessera
