// SPDX-License-Identifier: Apache-2.0
// Gradient transformations change all gradients of a step before the optimizer reads them, or skip
// the step.
#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "layers/parameter.h"

namespace tessera {

struct GradientStep {
  struct Weight {
    const Parameter* parameter = nullptr;
    Tensor value, gradient;  // They have one type.
  };
  std::vector<Weight> weights;  // Those that are trained, in the order of the model.
  Tensor count;                 // f32: updates applied so far.
  Tensor apply;                 // bool; false: nothing changes in this step.
};

class BaseGradientTransformation {
 public:
  virtual ~BaseGradientTransformation() = default;
  // Replaces gradients by others of their types, and `apply` by another condition.
  virtual void transform(GradientStep& step) const = 0;
};

// Calls it; Error, naming the class, if types are not as above afterwards.
void checked_transform(const BaseGradientTransformation& transformation, GradientStep& step);

// Scales gradients so that their norm is at most max_norm: that of all together, or of each tensor.
class ClipGradientNorm final : public BaseGradientTransformation {
 public:
  struct HParams {
    using Instance = ClipGradientNorm;
    double max_norm = 1.0;
    bool each_tensor = false;
    FIELDS(About(max_norm, kPositive), each_tensor)
  };
  explicit ClipGradientNorm(const HParams& p) : p_(p) {}
  void transform(GradientStep& step) const override;

 private:
  HParams p_;
};

// Limits every element to [-limit, limit].
class ClipGradientValue final : public BaseGradientTransformation {
 public:
  struct HParams {
    using Instance = ClipGradientValue;
    double limit = 1.0;
    FIELDS(About(limit, kPositive))
  };
  explicit ClipGradientValue(const HParams& p) : p_(p) {}
  void transform(GradientStep& step) const override;

 private:
  HParams p_;
};

// Subtracts from the gradient of a matrix its mean over the inputs of each output (Yong et al.,
// 2020); vectors stay.
class CentralizeGradient final : public BaseGradientTransformation {
 public:
  struct HParams {
    using Instance = CentralizeGradient;
    FIELDS()
  };
  explicit CentralizeGradient(const HParams&) {}
  void transform(GradientStep& step) const override;
};

// Adds normal noise of the variance scale²/(1 + t)^decay after t updates (Neelakantan et al.,
// 2015), equal on all meshes. Put it after what clips.
class GradientNoise final : public BaseGradientTransformation {
 public:
  struct HParams {
    using Instance = GradientNoise;
    double scale = 0.1;
    double decay = 0.55;
    FIELDS(About(scale, kPositive), About(decay, kNotNegative))
  };
  explicit GradientNoise(const HParams& p) : p_(p) {}
  void transform(GradientStep& step) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseGradientTransformation, ClipGradientNorm::HParams>;
extern template class HolderOf<BaseGradientTransformation, ClipGradientValue::HParams>;
extern template class HolderOf<BaseGradientTransformation, CentralizeGradient::HParams>;
extern template class HolderOf<BaseGradientTransformation, GradientNoise::HParams>;

}  // namespace tessera
