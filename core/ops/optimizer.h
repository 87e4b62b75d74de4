// SPDX-License-Identifier: Apache-2.0
// Work of optimizers in one pass over their operands, each with a decomposition: updates and the
// norm of gradients. Scalars are f32 tensors, so that one program runs every step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/ops/rounding.h"

namespace tessera {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;              // Added outside the root.
  double epsilon_root = 0.0;          // Added inside the root.
  double weight_decay = 0.0;          // Decoupled (Loshchilov and Hutter, 2019).
  bool bias_corrected_decay = false;  // Pax: decays β(1-β^t)/(1-β^(t+1)); else the usual m̂, v̂.
  Rounding rounding = Rounding::kStochastic;  // Rounding of moments in bf16.
};

namespace key {
inline constexpr AttributeName<double> kWeightDecay{"weight_decay"};
}  // namespace key
// Reads them from a node's attributes, except for the rounding.
AdamOptions adam_options(const Attributes& attributes);

struct AdamState {
  Tensor parameter, first_moment, second_moment;
};

// Runs one Adam step on f32 parameters and on moments that are each f32 or bf16. The arithmetic is
// in f32; a moment in bf16 is rounded when it is stored, after the parameter's step, with the noise
// {"", kLow} for the first and {"", kHigh} for the second (stochastic_round). `count` (f32 scalar):
// steps taken before this one. `gradient_scale` (f32 scalar) multiplies the gradient first
// (clipping). If `apply` (bool scalar) is false, the state is returned unchanged.
AdamState adam_update(const AdamState& state, Operand gradient, Operand learning_rate,
                      Operand count, Operand gradient_scale, Operand apply,
                      const AdamOptions& options);

// Returns the sum of the squares of all elements of these f32 or bf16 tensors, an f32 scalar, in
// one pass. They are split over the same mesh axes, over which the result is a partial sum.
Tensor squared_norm(const std::vector<Tensor>& tensors, SourceSite site = SourceSite::current());
// Returns the mesh axes that split any axis of the type, in mesh order.
std::vector<std::string> split_of(const Mesh& mesh, const Type& type);

extern const Op kAdamUpdateOp, kSquaredNormOp;
// The order of the operands of adam_update: state and gradient, then the scalars.
struct AdamOperand {
  enum Number : size_t { kParameter, kFirst, kSecond, kGradient, kRate, kCount, kScale, kApply };
};

}  // namespace tessera
