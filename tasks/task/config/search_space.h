// SPDX-License-Identifier: Apache-2.0
// What `runexp --mode=sweep` varies: knobs and fields with their values, as a grid or as a random
// space. An experiment's search() returns one (tasks/task/config/experiment.h); --sweep gives one
// on the command line. tasks/sweep runs it.
//
//   Sweep search() const override {
//     return grid({{"learning_rate", {1e-3, 3e-4}}, {"num_layers", {2, 4}}});
//   }
//   Sweep search() const override {
//     return random_space({{"learning_rate", log_uniform(1e-4, 1e-2)}, {"num_layers", {2, 4, 8}}},
//                         20);
//   }
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

// A value as `--set` takes it. For lists and templates, give that text: "[1,4,1]", "SiLU".
class SweepValue {
 public:
  SweepValue(bool value) : text_(value ? "true" : "false") {}
  SweepValue(std::integral auto value) : text_(std::to_string(value)) {}
  SweepValue(std::floating_point auto value);
  SweepValue(NamedEnum auto value) : text_(enum_name(value)) {}
  SweepValue(const char* text) : text_(text) {}
  SweepValue(std::string text) : text_(std::move(text)) {}

  const std::string& text() const { return text_; }

 private:
  static std::string number_text(double value);
  std::string text_;
};

SweepValue::SweepValue(std::floating_point auto value)
    : text_(number_text(static_cast<double>(value))) {}

// The values of one knob or field: some that are listed, or a distribution.
struct SweepValues {
  enum class Kind {
    kListed,
    kUniform,
    kLogUniform,      // The logarithm is uniform.
    kUniformInteger,  // Both bounds included.
  };

  SweepValues() = default;
  SweepValues(std::initializer_list<SweepValue> values);

  Kind kind = Kind::kListed;
  std::vector<std::string> listed;  // In the syntax of --set.
  double low = 0.0;                 // Bounds of a distribution.
  double high = 0.0;
};

SweepValues uniform(double low, double high);
SweepValues log_uniform(double low, double high);
SweepValues uniform_integer(int64_t low, int64_t high);

struct SweepAxis {
  std::string path;  // A knob, or a field of the configuration.
  SweepValues values;
};

// Which value of the metric is the best.
enum class SweepGoal { kMin, kMax };

struct Sweep {
  std::vector<SweepAxis> axes;  // None: there is nothing to vary.
  // 0: a grid, which is every combination of listed values. Otherwise this many trials, each with
  // one value drawn from every axis; of listed values, each with the same probability.
  int64_t num_trials = 0;
  int64_t seed = 0;               // Seed of the drawn values.
  std::string metric;             // By which trials are compared; empty: tasks/sweep/trials.h.
  std::optional<SweepGoal> goal;  // Unset: known from the metric.
};

Sweep grid(std::vector<SweepAxis> axes);
Sweep random_space(std::vector<SweepAxis> axes, int64_t num_trials, int64_t seed = 0);

}  // namespace tessera
