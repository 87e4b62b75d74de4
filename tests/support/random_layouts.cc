// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_layouts.h"

#include "core/compile/autodiff/autodiff.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int kSteps = 30;
constexpr int kNumInputs = 4;
const std::vector<std::string> kNames = {"a", "b", "c", "d"};
const std::vector<int64_t> kSizes = {4, 8, 12, 4};

// A mask that is true at the first positions of an axis. A condition on values would make the
// function non-differentiable, where finite differences are wrong.
Tensor is_early(const Tensor& x, const std::string& axis) {
  const Axis along = x.has(axis) ? x.type().axis(axis) : Axis{axis, 4, {}};
  return less(iota(along), constant(2.0, DType::kI32));
}

std::string reversed_names(const Tensor& x) {
  std::string names;
  for (const std::string& name : x.type().names()) names = name + " " + names;
  return names;
}

Type plain(const Tensor& x) {
  Type type = x.type();
  type.partial = {};
  for (Axis& axis : type.axes) axis.split.clear();
  return type;
}

Tensor whole(const Tensor& x) {
  Type type = x.type();
  type.partial = {};
  return reshard(x, type);
}

}  // namespace

RandomLayouts::RandomLayouts(uint64_t seed, const Mesh& mesh)
    : draws_(seed), mesh_(mesh), scope_(graph_, mesh, rules_) {
  for (int i = 0; i < kNumInputs; ++i) add_input(i);
  ids_ = input("ids", InputKind::kBatch, parse_type("i32[\"n=4\"]"));
  step_ = input("step", InputKind::kScalar, parse_type("i32[\"\"]"));
  for (int step = 0; step < kSteps; ++step) apply_one();
}

void RandomLayouts::differentiate() {
  Tensor loss;
  for (const Tensor& value : pool_) {
    Tensor sum = reduce_sum(value);
    sum = reshard(sum, "");
    const double share = 1.0 / static_cast<double>(value.type().elements());
    loss = loss ? loss + scale(sum, share) : scale(sum, share);
  }
  const std::vector<Tensor> gradient = gradients(loss, inputs_);
  output("loss", loss);
  output("last", whole(pool_.back()));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    REQUIRE(gradient[i].type().text_sized() == inputs_[i].type().text_sized());
    output("gradient of " + graph_.describe(inputs_[i].id()), gradient[i]);
  }
}

ReferenceInputs RandomLayouts::sample(uint64_t seed) const {
  Draws draws(seed);
  ReferenceInputs sample = {{"ids", {0, 3, 1, 1}}, {"step", {7}}};
  for (const Tensor& x : inputs_) {
    std::vector<double>& values = sample[graph_.describe(x.id())];
    for (int64_t i = 0; i < x.type().elements(); ++i) values.push_back(draws.noise());
  }
  return sample;
}

void RandomLayouts::add_input(int i) {
  Type type;
  for (size_t axis = 0; axis < kNames.size(); ++axis) {
    if (draws_.below(2) == 0) type.axes.push_back({kNames[axis], kSizes[axis], {}});
  }
  const Type layout = draws_.of(all_layouts(type, mesh_, Partials::kNone));
  inputs_.push_back(input("x" + std::to_string(i), InputKind::kParameter, layout));
  pool_.push_back(inputs_.back());
}

void RandomLayouts::apply_one() {
  Choice choice;
  choice.op = draws_.below(36);
  choice.x = draws_.of(pool_);
  choice.y = draws_.of(pool_);
  choice.axis = choice.x.type().rank() == 0 ? "a" : draws_.of(choice.x.type().names());
  choice.other = draws_.of(kNames);
  choice.number = draws_.below(1000);
  const std::string error = error_of([&] {
    const Tensor made = apply(choice);
    if (made.type().elements() <= 4096) pool_.push_back(made);
  });
  decisions_ += error == "no error" ? '1' : '0';
  if (error == "no error") return;
  INFO(error);
  REQUIRE(error.starts_with("tests/support/random_layouts.cc:"));
  REQUIRE(error.size() > 50);
}

Tensor RandomLayouts::apply(const Choice& choice) {
  if (choice.op < 13) return elementwise(choice);
  if (choice.op < 25) return structural(choice);
  if (choice.op < 31) return composite(choice);
  const std::vector<Type> layouts = all_layouts(plain(choice.x), mesh_, Partials::kSums);
  return reshard(choice.x, layouts[choice.number % layouts.size()]);
}

Tensor RandomLayouts::elementwise(const Choice& choice) {
  const Tensor &x = choice.x, &y = choice.y;
  switch (choice.op) {
    case 0:
      return x + y;
    case 1:
      return x - y;
    case 2:
      return x * y;
    case 3:
      return x / (square(y) + 1.0);
    case 4:
      return scale(x, 0.5);
    case 5:
      return tanh(x);
    case 6:
      return gelu(x);
    case 7:
      return sin(neg(x));
    case 8:
      return exp(tanh(x));
    case 9:
      return where(is_early(x, choice.axis), sigmoid(x), y);
    case 10:
      return mask(x, is_early(x, choice.axis));
    case 11:
      return log(square(x) + 1.0) + rsqrt(square(x) + 1.0);
    default:
      return pow(exp(tanh(x)), tanh(y));
  }
}

Tensor RandomLayouts::structural(const Choice& choice) {
  const auto& [op, number, x, y, axis, other] = choice;
  switch (op) {
    case 13:
      return scale(einsum(x, y, over(axis)), 0.1);
    case 14:
      return reduce_mean(x, axis);
    case 15:
      return rename(x, axis, other);
    case 16:
      return transpose(x, reversed_names(x));
    case 17:
      return broadcast(x, {{other, 4, {}}});
    case 18:
      return slice(x, axis, number % 2 == 0 ? 0 : 4, number % 2 == 0 ? 4 : 8);
    case 19:
      return pad(x, axis, 1, 3);
    case 20:
      return shift_right(x, axis, 0.0);
    case 21:
      return concat({x, y}, axis);
    case 22:
      return gather(x, ids_, axis);
    case 23:
      return split_axis(x, axis, {other, 4, {}}, {"e", 4, {}});
    default:
      return merge_axes(x, axis, draws_.of(kNames), other);
  }
}

Tensor RandomLayouts::composite(const Choice& choice) {
  const auto& [op, number, x, y, axis, other] = choice;
  switch (op) {
    case 25:
      return softmax(x, axis);
    case 26:
      return one_hot(ids_, {other, 4, {}}, DType::kF32) * x;
    case 27:
      return dropout(x, 0.5, step_);
    case 28: {  // A log-sum-exp, whose value does not depend on the subtracted maximum.
      const Tensor maximum = whole(reduce_max(stop_gradient(x), axis));
      return maximum + log(whole(reduce_sum(exp(x - maximum), axis)));
    }
    case 29: {  // The gradient of a lookup table.
      const Tensor rows = gather(x, ids_, axis);
      return scatter_add(rows, ids_, x.type().axis(axis));
    }
    default: {
      const Tensor &carried = x, &constant_used = y;
      return repeat("layers", 3, {carried}, {},
                    [&](Tensor index, std::vector<Tensor> carries, auto) {
                      const Tensor turn = scale(cast(index, DType::kF32), 0.1);
                      const Tensor next = scale(carries[0], 0.5) + tanh(constant_used) * turn;
                      return RepeatBody{{next}, {}};
                    })
          .carries[0];
    }
  }
}

}  // namespace tessera
