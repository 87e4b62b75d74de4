// SPDX-License-Identifier: Apache-2.0
// All optimizers. Their state is f32 unless `state` says bf16, whatever the parameter's dtype.
// Weight decay is decoupled: it does not enter the moments.
#pragma once

#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "core/ops/newton_schulz.h"
#include "tasks/task/learner/base_optimizer.h"
#include "tasks/task/learner/matrix_optimizer.h"

namespace tessera {

// Stochastic gradient descent with optional momentum (Polyak, 1964), also Nesterov's.
class Sgd final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Sgd;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double momentum = 0.0;  // 0: no momentum.
    bool nesterov = false;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(momentum, kRate), nesterov,
           About(weight_decay, kNotNegative), state)
  };
  explicit Sgd(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;
  double width_factor(const Parameter& parameter) const override;

 private:
  HParams p_;
};

// Lion (Chen et al., 2023): steps by the sign of an average of gradients, so one moment is stored.
// Suits a learning rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger.
class Lion final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Lion;
    double learning_rate = 1e-4;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;   // For the average whose sign is the step,
    double beta2 = 0.99;  // and for the one that is stored.
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(weight_decay, kNotNegative), state)
  };
  explicit Lion(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// Adam (Kingma and Ba, 2015) as in Pax: bias-corrected decay rates; the RMS of each tensor's update
// is capped, weight decay is added, and the sum is multiplied by the learning rate.
class Adam final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adam;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    double epsilon_root = 0.0;
    double clip_threshold = 1.0;  // On the RMS of each tensor's update; <= 0: no cap.
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), About(epsilon_root, kNotNegative),
           clip_threshold, About(weight_decay, kNotNegative), state)
  };
  explicit Adam(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// Adam with bias-corrected moments and decoupled weight decay (Loshchilov and Hutter, 2019); with
// `amsgrad` it divides by the largest second moment so far (Reddi et al., 2018; as PyTorch's).
class AdamW final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = AdamW;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
    bool amsgrad = false;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), About(weight_decay, kNotNegative),
           amsgrad, state)
  };
  explicit AdamW(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// LAMB (You et al., 2020): Adam's step with weight decay, as long for each tensor as its norm.
class Lamb final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Lamb;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    bool bias_correction = true;
    double max_norm = 10.0;  // Larger norms of weights count as this one; 0: no limit.
    double weight_decay = 0.01;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), bias_correction,
           About(max_norm, kNotNegative), About(weight_decay, kNotNegative), state)
  };
  explicit Lamb(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;
  double width_factor(const Parameter& parameter) const override;

 private:
  HParams p_;
};

// Adagrad (Duchi et al., 2011): divides by the root of the sum of all squared gradients.
class Adagrad final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adagrad;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double initial_accumulator = 0.0;  // What the sum begins with.
    double epsilon = 1e-10;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl,
           About(initial_accumulator, kNotNegative), About(epsilon, kNotNegative),
           About(weight_decay, kNotNegative), state)
  };
  explicit Adagrad(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// RMSProp (Tieleman and Hinton, 2012), as PyTorch's: divides by the root of an average of squared
// gradients; `centered`, by their deviation (Graves, 2013). Momentum sums the steps.
class RmsProp final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = RmsProp;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double decay = 0.99;
    double epsilon = 1e-8;
    double momentum = 0.0;  // 0: no momentum.
    bool centered = false;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(decay, kRate),
           About(epsilon, kNotNegative), About(momentum, kRate), centered,
           About(weight_decay, kNotNegative), state)
  };
  explicit RmsProp(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// Adafactor (Shazeer and Stern, 2018): stores the second moment of a large matrix as its row and
// column means, so that state is a few per cent of Adam's. Optional momentum averages the capped
// update before the learning rate.
class Adafactor final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adafactor;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double decay_exponent = 0.8;  // The second moment's decay is 1 - t^-decay_exponent,
    double decay_adam = 0.0;      // or, if > 0, this one, bias-corrected as in Adam (Pax).
    double beta1 = 0.0;           // 0: no momentum.
    double epsilon1 = 1e-30;      // Added to the squared gradient.
    double epsilon2 = 1e-3;       // Lower bound of the parameter scale.
    double clip_threshold = 1.0;  // On the RMS of each tensor's update; <= 0: no cap.
    int64_t min_dim_size_to_factor = 128;
    bool multiply_by_parameter_scale = true;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(decay_exponent, kPositive),
           About(decay_adam, kRate), About(beta1, kRate), About(epsilon1, kNotNegative),
           About(epsilon2, kNotNegative), clip_threshold,
           About(min_dim_size_to_factor, kNotNegative), multiply_by_parameter_scale,
           About(weight_decay, kNotNegative), state)
  };
  explicit Adafactor(const HParams& p);
  std::vector<Slot> slots(const StoredWeight& weight) const override;
  Updated update(const UpdateInputs& inputs) const override;
  double width_factor(const Parameter& parameter) const override;

 private:
  HParams p_;
};

// Schedule-free AdamW (Defazio et al., 2024): steps are made at z, gradients are taken at the
// weights y = (1-beta1)·z + beta1·x, and x, an average of z, is what evaluation, decoding and
// export read. It needs no decay of the learning rate, but a warm-up.
class ScheduleFreeAdamW final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = ScheduleFreeAdamW;
    double learning_rate = 2.5e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
    // A step counts in the average by t^step_power · (the largest rate so far)^rate_power.
    double step_power = 0.0;
    double rate_power = 2.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), About(weight_decay, kNotNegative),
           About(step_power, kNotNegative), About(rate_power, kNotNegative), state)
  };
  explicit ScheduleFreeAdamW(const HParams& p);
  bool averages() const override { return true; }
  std::vector<Slot> slots(const StoredWeight& weight) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// Sophia-G (Liu et al., 2023, arXiv 2305.14342, algorithm 3). Every `hessian_interval` steps, the
// first included, the diagonal of the Hessian is estimated by Gauss-Newton-Bartlett: the squared
// gradient of the mean loss of labels drawn from the model's predictions, times their number. The
// step is sign(m)·min(1, |m| / (rho·h)); rho is the γ of the paper.
class SophiaG final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = SophiaG;
    double learning_rate = 1e-4;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.965;
    double beta2 = 0.99;
    double rho = 0.04;
    double epsilon = 1e-15;  // Added to rho·h.
    int64_t hessian_interval = 10;
    double weight_decay = 0.1;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(rho, kPositive), About(epsilon, kPositive),
           About(hessian_interval, {.min = 1}), About(weight_decay, kNotNegative), state)
  };
  explicit SophiaG(const HParams& p);
  int64_t interval() const override { return p_.hessian_interval; }
  bool reads_drawn_gradient() const override { return true; }
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

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

extern template class HolderOf<BaseOptimizer, Sgd::HParams>;
extern template class HolderOf<BaseOptimizer, Lion::HParams>;
extern template class HolderOf<BaseOptimizer, Adam::HParams>;
extern template class HolderOf<BaseOptimizer, AdamW::HParams>;
extern template class HolderOf<BaseOptimizer, Lamb::HParams>;
extern template class HolderOf<BaseOptimizer, Adagrad::HParams>;
extern template class HolderOf<BaseOptimizer, RmsProp::HParams>;
extern template class HolderOf<BaseOptimizer, Adafactor::HParams>;
extern template class HolderOf<BaseOptimizer, ScheduleFreeAdamW::HParams>;
extern template class HolderOf<BaseOptimizer, SophiaG::HParams>;
extern template class HolderOf<BaseOptimizer, Muon::HParams>;
extern template class HolderOf<BaseOptimizer, Shampoo::HParams>;

}  // namespace tessera
