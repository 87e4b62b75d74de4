// SPDX-License-Identifier: Apache-2.0
// Muon: momentum, made nearly orthogonal for each matrix of a weight. What has no matrices, and
// tables and heads, have another optimizer.
#pragma once

#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "core/ops/newton_schulz.h"
#include "tasks/task/learner/adam.h"
#include "tasks/task/learner/base_optimizer.h"
#include "tasks/task/learner/matrix_optimizer.h"

namespace tessera {

// The factor of a matrix's update.
enum class MuonScale {
  kMatchRmsAdamw,  // 0.2·√max(out, in): the RMS of AdamW's update (Liu et al., 2025, Moonlight).
  kOriginal,       // √max(1, out/in) (Jordan et al., 2024).
};

// Muon (Jordan et al., 2024), as torch.optim.Muon. Matrices are distributed over the devices that
// hold parts of the weight, so the result does not depend on the mesh.
class Muon final : public MatrixOptimizer {
 public:
  struct HParams {
    using Instance = Muon;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double momentum = 0.95;
    bool nesterov = true;
    double weight_decay = 0.1;
    MuonScale scale = MuonScale::kMatchRmsAdamw;
    int64_t steps = 5;                                             // Steps of Newton-Schulz.
    std::vector<double> coefficients = {3.4445, -4.7750, 2.0315};  // Factors of X, X³ and X⁵.
    double epsilon = 1e-7;
    DType dtype = DType::kBF16;  // Dtype of the products, bf16 or f32.
    // Axes that number matrices in weights that declare them as rows or columns: "heads".
    std::vector<std::string> block_axes;
    // Weights with one of these axes are tables or heads, which `other_tpl` updates.
    std::vector<std::string> excluded_axes = {"vocab", "positions", "types", "buckets"};
    // Updates what has no matrices and what is excluded, by Muon's schedule. Unset: an error.
    Template<BaseOptimizer> other_tpl = AdamW::HParams{};
    StatePolicy state;
    FIELDS(About(learning_rate, kPositive), schedule_tpl, About(momentum, kRate), nesterov,
           About(weight_decay, kNotNegative), scale, About(steps, {.min = 1}), coefficients,
           About(epsilon, kPositive), dtype, block_axes, excluded_axes, other_tpl, state)
  };
  explicit Muon(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  double scale_of(const Type& parameter, const MatrixAxes& axes) const override;

  HParams p_;
  NewtonSchulzOptions options_;
};

extern template class HolderOf<BaseOptimizer, Muon::HParams>;

}  // namespace tessera
