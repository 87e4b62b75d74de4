// SPDX-License-Identifier: Apache-2.0
// --mode=show_batch: prints what a host's model gets in a step, without the other hosts and without
// a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tasks/run/run_setting.h"

namespace tessera {

struct ShowBatchOptions {
  int64_t step = 0;
  int64_t host = 0, hosts = 1;
  std::string dataset;  // A name in eval_inputs or decode_inputs; "": the training input.
  int64_t rows = 2;     // Rows and positions of each to print.
  int64_t length = 16;
};
std::string batch_text(const RunContext& context, const ShowBatchOptions& options);
std::unique_ptr<BaseRun> show_batch_run(const RunContext& context, const ShowBatchOptions& options);

}  // namespace tessera
