// SPDX-License-Identifier: Apache-2.0
// How optimizers store their state between steps. Their arithmetic is in f32, whatever they store.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"
#include "core/ops/rounding.h"

namespace tessera {

// The dtypes of an optimizer's state, f32 or bf16. Written "first_moment=bf16,second_moment=bf16"
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

}  // namespace tessera
