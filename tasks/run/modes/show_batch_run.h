// SPDX-License-Identifier: Apache-2.0
// --mode=show_batch: prints what a host's model gets in a step, without the other hosts and without
// a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/hparams/fields.h"
#include "tasks/run/run_setting.h"

namespace tessera {

struct ShowBatchOptions {
  static constexpr bool kInlined = true;
  int64_t step = 0;
  int64_t host = 0, hosts = 1;
  std::string dataset;
  int64_t rows = 2, length = 16;
  FIELDS(About(step, "the step that trains on the batch, from 0", {.min = 0}),
         About(host, "whose rows, of --hosts", {.min = 0}),
         About(hosts, "processes of the run, each with --devices", {.min = 1, .max = 1 << 20}),
         About(dataset, "one of eval_inputs or decode_inputs instead of the training input"),
         About(rows, "rows to print", {.min = 0}),
         About(length, "positions of each to print", {.min = 0}))
};
std::string batch_text(const RunContext& context, const ShowBatchOptions& options);
std::unique_ptr<BaseRun> show_batch_run(const RunContext& context, const ShowBatchOptions& options);

}  // namespace tessera
