// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/state_policy.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {
namespace {

enum class Kept { kStored, kNot };

void check_moment(std::string_view optimizer, std::string_view field, DType dtype, Kept kept) {
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: state.{} is {}, expected f32 or bf16", optimizer, field, dtype_name(dtype));
  if (dtype != DType::kF32 && kept == Kept::kNot)
    fail("{}: state.{} is {}, but {} with these settings stores no such moment; leave it at f32",
         optimizer, field, dtype_name(dtype), optimizer);
}

}  // namespace

void check_state(std::string_view optimizer, const StatePolicy& state,
                 const std::vector<Moment>& stored) {
  const auto kept = [&](MomentOrder order) {
    const bool has = std::ranges::find(stored, order, &Moment::order) != stored.end();
    return has ? Kept::kStored : Kept::kNot;
  };
  check_moment(optimizer, "first_moment", state.first_moment, kept(MomentOrder::kFirst));
  check_moment(optimizer, "second_moment", state.second_moment, kept(MomentOrder::kSecond));
}

}  // namespace tessera
