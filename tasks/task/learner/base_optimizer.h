// SPDX-License-Identifier: Apache-2.0
// The interface of an optimizer: its state for each parameter, and one step as graph ops, with the
// functions that optimizers share. Clipping, masks and the skipping of bad steps belong to the
// learner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/graph.h"
#include "core/graph/type.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "core/ops/rounding.h"
#include "layers/parameter.h"
#include "tasks/task/learner/schedules.h"

namespace tessera {

// How optimizers store their state between steps; their arithmetic is in f32, whatever they store:
// the dtypes of an optimizer's state, f32 or bf16. Written "first_moment=bf16,second_moment=bf16"
// in --set. (Megatron-LM: exp_avg_dtype, exp_avg_sq_dtype; optax: mu_dtype.)
struct StatePolicy {
  static constexpr std::string_view kName = "StatePolicy";
  DType first_moment = DType::kF32;   // Averages of gradients or updates: m, and Sgd's momentum.
  DType second_moment = DType::kF32;  // Averages of squared gradients: v, v_row and v_column.
  Rounding rounding = Rounding::kStochastic;  // How state is rounded to bf16.
  FIELDS(first_moment, second_moment, rounding)
  bool operator==(const StatePolicy&) const = default;
};

// A moment that an optimizer stores: the name of its slot, and which dtype of the policy it has.
enum class MomentOrder { kFirst, kSecond };
struct Moment {
  std::string name;
  MomentOrder order = MomentOrder::kFirst;
};

// Error for a dtype that state cannot have, or for one of a moment that is not stored.
void check_state(std::string_view optimizer, const StatePolicy& state,
                 const std::vector<Moment>& stored);

// One tensor of optimizer state, "learner/<name>/<parameter path>", initially zero; f32 or bf16.
// Names differ, and have no '/'.
struct Slot {
  std::string name;
  Type type;
};

// A weight whose state slots() gives.
struct StoredWeight {
  std::string path;
  Type type;       // In its stored layout and dtype.
  FanAxes matrix;  // As in UpdateInputs.
};

// The inputs of one parameter's step. Scalars are f32.
struct UpdateInputs {
  std::string path;           // "lm.softmax.w".
  Tensor parameter;           // In its stored layout and dtype.
  std::vector<Tensor> slots;  // In the order of `slots()`.
  Tensor gradient;            // Has the parameter's type.
  Tensor gradient_scale;      // Multiplies the gradient (clipping).
  Tensor learning_rate;       // With the schedule.
  Tensor count;               // Updates applied so far.
  Tensor apply;               // bool; false: parameter and slots stay unchanged.
  double weight_decay = 0.0;  // After masks.
  FanAxes matrix;             // Axes of its matrices (matrix_axes); empty: it has none.
  Tensor average;             // If `averages()`: in the parameter's type, initially equal to it.
  bool renews = true;         // Whether the step renews a part of the state (interval()).
  // In steps that renew, if `reads_drawn_gradient()`: the gradient of the loss of labels drawn from
  // the model's predictions, and the number of these labels. Invalid in other steps.
  Tensor drawn_gradient, drawn_labels;
};

// The results, in the types of `parameter`, `slots` and `average`.
struct Updated {
  Tensor parameter;
  std::vector<Tensor> slots;
  Tensor average = {};
};

class BaseOptimizer {
 public:
  virtual ~BaseOptimizer() = default;
  // Error if the schedule's factor is negative or not finite.
  double learning_rate(int64_t step, int64_t num_train_steps) const;
  double base_learning_rate() const { return learning_rate_; }  // Without the schedule.
  int64_t warmup_steps() const;                                 // The schedule's;
  int64_t decay_end() const;                                    // see BaseSchedule.
  double weight_decay() const { return weight_decay_; }  // For parameters that no mask excludes.
  // The optimizer of this parameter: itself, or one of those of which it consists. Its learning
  // rate then follows the schedule of the whole. Error for a parameter that none of them updates.
  virtual const BaseOptimizer& for_parameter(const Parameter&) const { return *this; }
  // Whether it computes averages of the weights, which evaluation, decoding and export read.
  virtual bool averages() const { return false; }
  // Every how many steps it renews a part of its state. If not in all, such steps have a program of
  // their own.
  virtual int64_t interval() const { return 1; }
  virtual bool reads_drawn_gradient() const { return false; }
  // The state of this parameter; by default its moments.
  virtual std::vector<Slot> slots(const StoredWeight& weight) const;
  virtual Updated update(const UpdateInputs& inputs) const = 0;
  // The factor of the weight's learning rate for its size relative to a base model, by which an
  // update changes activations as there (muP). By default that of an update whose elements do not
  // depend on the size of gradients.
  virtual double width_factor(const Parameter& parameter) const;

 protected:
  // Takes HParams with learning_rate, schedule_tpl and weight_decay,
  template <typename HParams>
  explicit BaseOptimizer(const HParams& p)
      : learning_rate_(p.learning_rate),
        weight_decay_(p.weight_decay),
        schedule_(p.schedule_tpl.instantiate()) {}
  // and also with `state` (StatePolicy); the optimizer stores these moments.
  template <typename HParams>
  BaseOptimizer(const HParams& p, std::vector<Moment> moments) : BaseOptimizer(p) {
    state_ = p.state;
    moments_ = std::move(moments);
    check_state(class_name<HParams>(), p.state, moments_);
  }
  // What is stored of the moments after a step, if these are the first of slots().
  std::vector<Tensor> stored(const UpdateInputs& inputs, const std::vector<Tensor>& next) const;

 private:
  double learning_rate_;
  double weight_decay_;
  std::unique_ptr<BaseSchedule> schedule_;
  StatePolicy state_;
  std::vector<Moment> moments_;
};

// Call the two functions and return their results. Error, naming the class, unless these are as the
// comments of Slot, UpdateInputs and Updated say.
std::vector<Slot> checked_slots(const BaseOptimizer& optimizer, const StoredWeight& weight);
Updated checked_update(const BaseOptimizer& optimizer, const UpdateInputs& inputs);

// The learning rate of `part`, where `whole` has this one (BaseOptimizer::for_parameter).
Tensor learning_rate_of(const BaseOptimizer& part, const BaseOptimizer& whole, const Tensor& rate);
Type in_dtype(Type type, DType dtype);
Tensor in_f32(const Tensor& x);

// Functions shared by optimizers. A weight stacked by Repeated is a stack of tensors: norms "per
// tensor" are per layer, so that repeated and unrolled models agree.

// Σx² of each tensor, not partial: a scalar, or one for each layer of a stack, laid out as they
// are.
Tensor sum_of_squares(const Tensor& x);
// √(Σx²/n) of each tensor of n elements, in the same shape.
Tensor rms(const Tensor& x);
// √Σx² over all of these tensors: a scalar, with one all-reduce over the mesh. One pass over all of
// them takes one launch, but keeps them in memory until then.
enum class NormPasses { kOne, kOneForEach };
Tensor norm_of_all(const std::vector<Tensor>& tensors, NormPasses passes);
// min(1, limit / norm). (With a non-finite norm the step is skipped.)
Tensor clip_scale(double limit, const Tensor& norm);
// x / max(1, rms(x) / threshold), for each tensor.
Tensor cap_rms(const Tensor& x, double threshold);

// parameter - learning_rate·(update + decay·parameter) if `apply`, else the parameter.
Tensor decayed_step(const UpdateInputs& inputs, const Tensor& update);
// The gradient in f32, times gradient_scale.
Tensor scaled_gradient(const UpdateInputs& inputs);

// The slot's value in f32, and what is stored there after the step: `next` (f32) in the slot's
// dtype if `apply`, else what was there. Slots of a parameter that are rounded stochastically have
// different noise.
Tensor old_state(const UpdateInputs& inputs, size_t slot);
Tensor stored_state(const UpdateInputs& inputs, size_t slot, const Tensor& next, Rounding rounding,
                    const Noise& noise);

inline constexpr Noise kFirstNoise{.half = NoiseHalf::kLow};    // For the first moment,
inline constexpr Noise kSecondNoise{.half = NoiseHalf::kHigh};  // and for the second.

// old·decay + new·(1 - decay).
Tensor averaged(double decay, const Tensor& old, const Tensor& next);
Tensor averaged(const Tensor& decay, const Tensor& old, const Tensor& next);
// β(1-β^t)/(1-β^(t+1)) after t updates: the decay that makes a running mean unbiased.
Tensor bias_corrected(double beta, const Tensor& count);
// 1-β^(t+1), by which to divide a running mean that began at zero, in the update after t others.
Tensor bias_correction(double beta, const Tensor& count);

}  // namespace tessera
