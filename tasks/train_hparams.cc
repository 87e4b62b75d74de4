// SPDX-License-Identifier: Apache-2.0
#include "tasks/train_hparams.h"

#include "core/base/error.h"

namespace tessera {

void check(const TrainHParams& p) {
  const auto at_least = [](std::string_view field, int64_t value, int64_t least) {
    check_at_least("task.train", field, value, least);
  };
  at_least("num_train_steps", p.num_train_steps, 0);
  at_least("num_microbatches", p.num_microbatches, 1);
  at_least("save_interval_steps", p.save_interval_steps, 0);
  at_least("save_max_to_keep", p.save_max_to_keep, 0);
  at_least("save_keep_every_steps", p.save_keep_every_steps, 0);
  at_least("eval_interval_steps", p.eval_interval_steps, 0);
  at_least("metrics_interval_steps", p.metrics_interval_steps, 0);
  at_least("summary_interval_steps", p.summary_interval_steps, 0);
  at_least("prefetch_batches", p.prefetch_batches, 1);
  at_least("collective_timeout_seconds", p.collective_timeout_seconds, 1);
  at_least("stop_deadline_seconds", p.stop_deadline_seconds, 1);
  at_least("sample.length", p.sample.length, 0);
  at_least("sample.interval_steps", p.sample.interval_steps, 0);
  check_finite("task.train", "early_stopping.min_improvement", p.early_stopping.min_improvement);
  check_finite("task.train", "early_stopping.target", p.early_stopping.target);
  at_least("early_stopping.patience_evals", p.early_stopping.patience_evals, 0);
  if (p.eval_loop_num_batches != -1 && p.eval_loop_num_batches < 1)
    fail("task.train.eval_loop_num_batches is {}; expected -1 (the whole set) or at least 1",
         p.eval_loop_num_batches);
}

}  // namespace tessera
