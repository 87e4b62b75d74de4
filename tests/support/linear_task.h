// SPDX-License-Identifier: Apache-2.0
// A model with a closed-form gradient: weighted least squares, y ≈ x·matrix + bias. Its training
// steps are compared with double-precision arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/single_task.h"

namespace tessera {

class LinearModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = LinearModel;
    static constexpr std::string_view kName = "LinearModel";
    Field<DTypePolicy> dtypes;
    FIELDS(dtypes)
  };
  static constexpr int64_t kInputs = 3, kOutputs = 2;

  explicit LinearModel(const HParams& p);

 private:
  ModelOutput fprop(const Features& features) const override;
  Tensor fprop_logits(const Features& features) const override;

  Weight matrix_, bias_;
};

struct LinearExamples {
  std::vector<double> x, y, weights;  // [batch inputs], [batch outputs], [batch]
  Batch batch() const;
  int64_t size() const { return static_cast<int64_t>(weights.size()); }
};
// Deterministic. Weights differ between examples, and one is zero.
LinearExamples some_examples(int64_t count, uint64_t seed = 1);

struct LinearWeights {
  std::vector<double> matrix, bias;  // [inputs outputs], [outputs]
};
struct LinearStep {
  double loss;
  LinearWeights gradient;
  double norm() const;
};
// Loss Σ weight·|y - prediction|² / Σ weight, and its gradient.
LinearStep linear_step(const LinearExamples& examples, const LinearWeights& weights);

// A LinearModel task on the reference device with fixed initial weights.
class LinearTrial {
 public:
  LinearTrial(const SingleTask::HParams& p, int64_t batch_size);

  StepResult step(const LinearExamples& examples);
  std::vector<double> read(const std::string& name) const;  // "matrix", "learner/m/bias", …
  std::map<std::string, double> evaluate(const LinearExamples& examples);  // Sums and weights.
  LinearWeights weights() const { return {read("matrix"), read("bias")}; }

 private:
  SingleTask task_;
  std::unique_ptr<Device> device_;
  Executor executor_;
  std::unique_ptr<TrainProgram> program_;
  int eval_program_ = 0;
  int64_t steps_ = 0;
};

// The configuration of LinearTrial: plain gradient descent with rate 0.1.
SingleTask::HParams linear_task();

}  // namespace tessera
