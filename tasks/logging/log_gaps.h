// SPDX-License-Identifier: Apache-2.0
// Lines that metrics.jsonl should have and has not: something else than the run wrote in it, or the
// machine stopped before it was on disk. A resumed run says so; nothing depends on them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// One line that says which training steps up to `last_step` have no line in the text of a
// metrics.jsonl; empty if all have one. A line is due every `metrics_interval_steps` that the event
// `start` before it gives, or else every `interval` steps; 0: none is due.
std::string describe_log_gaps(std::string_view metrics, int64_t last_step, int64_t interval);

}  // namespace tessera
