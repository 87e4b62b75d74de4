// SPDX-License-Identifier: Apache-2.0
// A run of two steps of a small model, into which tests put classes that return invalid results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "inputs/synthetic_input.h"
#include "layers/models/base_model.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace tessera {

// Throws the exception of a faulty function.
inline void throw_if(const std::string& fault, const std::string& function) {
  if (fault == function + " throws") throw std::runtime_error("boom");
  if (fault == function + " throws a number") throw 7;
}

// A layer that multiplies by a weight, or does what `fault` says.
class OddLayer final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = OddLayer;
    static constexpr std::string_view kName = "OddLayer";
    std::string fault;
    FIELDS(fault)
  };
  explicit OddLayer(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;
  HParams p_;
  Weight scale_, undeclared_;
  ChildLayer<UnaryLayer> unmade_;
};

// The mean of the squares of ids, times a weight of OddLayer; or what `fault` says.
class OddModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = OddModel;
    static constexpr std::string_view kName = "OddModel";
    std::string fault;
    std::string layer_fault;
    FIELDS(fault, layer_fault)
  };
  explicit OddModel(const HParams& p);

 private:
  ModelOutput fprop(const Features& features) const override;
  Tensor fprop_logits(const Features& features) const override;
  Tensor fprop_next_logits(const Features& features) const override;
  Tensor squares(const Features& features) const;

  HParams p_;
  ChildLayer<UnaryLayer> layer_;
};

SingleTask::HParams odd_task(const OddModel::HParams& model = {});
// Trains two steps on generated ids and evaluates two batches.
ExperimentConfig odd_config(const OddModel::HParams& model = {});
// The message of the Error of the run, or "no error".
std::string error_of_run(const ExperimentConfig& config, RunWith options = {});

// A fault of a class, and what the message of its error contains.
struct Fault {
  std::string name;
  std::vector<std::string> parts;
};
void require_errors(const std::vector<Fault>& faults,
                    const std::function<std::string(const std::string& fault)>& error_with);

}  // namespace tessera
