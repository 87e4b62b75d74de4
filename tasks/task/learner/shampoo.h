// SPDX-License-Identifier: Apache-2.0
// Shampoo: gradients of matrices, multiplied from both sides by inverse roots of what they sum to.
// What has no matrices, and tables and heads, have another optimizer.
#pragma once

#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/adam.h"
#include "tasks/task/learner/base_optimizer.h"
#include "tasks/task/learner/matrix_optimizer.h"

namespace tessera {

// The factor of a matrix's update.
enum class ShampooScale {
  // The RMS of AdamW's update, which statistics that are means instead of sums would give: the
  // fourth root of rows·columns, or the root of a side without statistics. An RMS above 1, as from
  // roots that are out of date, becomes 1.
  kMatchAdamw,
  kOriginal,  // 1.
};

// Shampoo (Gupta et al., 2018, arXiv 1802.09568): L^(-1/4)·G·R^(-1/4), where L sums G·G^T and R
// G^T·G over the steps; of a matrix with one large side the other's statistics alone, to the power
// -1/2 (Anil et al., 2020, arXiv 2002.09018). Roots are computed by products (inverse_root).
class Shampoo final : public MatrixOptimizer {
 public:
  struct HParams {
    using Instance = Shampoo;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double momentum = 0.9;           // The average of gradients takes the place of G.
    double statistics_decay = 0.99;  // 1: sums, as in the paper; less: averages of L and R.
    int64_t root_interval = 10;      // Steps between computations of roots.
    double damping = 1e-6;           // See InverseRootOptions.
    double epsilon = 1e-30;
    ShampooScale scale = ShampooScale::kMatchAdamw;
    int64_t max_precondition_dims = 8192;  // A larger side has no statistics.
    double weight_decay = 0.1;
    // As Muon's.
    std::vector<std::string> block_axes;
    std::vector<std::string> excluded_axes = {"vocab", "positions", "types", "buckets"};
    Template<BaseOptimizer> other_tpl = AdamW::HParams{};
    StatePolicy state;
    FIELDS(About(learning_rate, kPositive), schedule_tpl, About(momentum, kRate),
           About(statistics_decay, {.above = 0, .max = 1}), About(root_interval, {.min = 1}),
           About(damping, {.min = 1e-6, .max = 1}), About(epsilon, kPositive), scale,
           About(max_precondition_dims, {.min = 1}), About(weight_decay, kNotNegative), block_axes,
           excluded_axes, other_tpl, state)
  };
  explicit Shampoo(const HParams& p);
  const BaseOptimizer& for_parameter(const Parameter& parameter) const override;
  int64_t interval() const override;
  std::vector<Slot> slots(const StoredWeight& weight) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  struct Side;
  double scale_of(const Type& parameter, const MatrixAxes& axes) const override;

  // Their sides with at most max_precondition_dims rows or columns.
  std::vector<Side> sides_of(const Type& weight, const Type& matrices) const;
  // The roots of a side's statistics, to which it adds the gradient. Adds the next state.
  Tensor root_of(const Side& side, int64_t root, const Tensor& gradient, const UpdateInputs& inputs,
                 std::vector<Tensor>& next) const;

  HParams p_;
};

extern template class HolderOf<BaseOptimizer, Shampoo::HParams>;

}  // namespace tessera
