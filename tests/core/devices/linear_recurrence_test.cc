// SPDX-License-Identifier: Apache-2.0
// Linear recurrences on the CPU, forward and backward, against their decomposition: chunks of all
// sizes, strong and no decay, and sequences in two calls.
#include "core/ops/linear_recurrence.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "core/devices/cpu/device.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/order.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

struct Sizes {
  int seq, key_dim, value_dim;
};

// Types of q, k, v, log_decay, beta, segments, state and the cotangents of out and of the last
// state.
std::vector<std::string> types_of(const std::string& dtype, const Sizes& s) {
  const std::string tokens = fmt::format("batch=2 seq={} heads=3", s.seq);
  const std::string key = fmt::format("{}[\"{} key_dim={}\"]", dtype, tokens, s.key_dim);
  const std::string value = fmt::format("{}[\"{} value_dim={}\"]", dtype, tokens, s.value_dim);
  const std::string gate = fmt::format("f32[\"{}\"]", tokens);
  const std::string state =
      fmt::format("f32[\"batch=2 heads=3 key_dim={} value_dim={}\"]", s.key_dim, s.value_dim);
  return {key,   key,   value, gate, gate, fmt::format("i32[\"batch=2 seq={}\"]", s.seq),
          state, value, state};
}

// Keys of length 1, as the delta rule has them.
Tensor unit_keys(const Tensor& k) {
  return rms_norm(k, {}, "key_dim", 1e-3) / std::sqrt(static_cast<double>(k.size("key_dim")));
}

// Keys in bf16 are rounded, those of the reference are not.
KernelCheck check_of(const std::string& dtype) {
  return {.tolerance_f32 = dtype == "f32" ? 2e-5 : 1e-2};
}

// Traces the op and its gradient, with cotangents of both results.
void trace_recurrence(Trial& trial, const Tensor& log_decay, const Tensor& beta, int options) {
  const std::vector<Tensor>& in = trial.inputs();
  LinearRecurrenceOptions with{.delta = options % 2 == 1};
  if (options / 2 % 2 == 1) with.segment_ids = cumulative_sum(in[5], "seq");
  if (options >= 4) with.state = in[6];
  const LinearRecurrence y =
      linear_recurrence(in[0], unit_keys(in[1]), in[2], log_decay, beta, with);
  const Node node = trial.graph().node(trial.graph().value(y.out.id()).producer);
  std::vector<Tensor> inputs;
  for (const ValueId id : node.inputs) inputs.emplace_back(&trial.graph(), id);
  node.op->vjp({node, inputs, std::vector<Tensor>{y.out, y.state},
                std::vector<Tensor>{in[7], options == 0 ? Tensor() : in[8]}});
}

TEST_CASE("linear recurrences agree with their decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const Sizes sizes = GENERATE(Sizes{1, 16, 24}, Sizes{1, 20, 12}, Sizes{65, 16, 24},
                               Sizes{130, 20, 12}, Sizes{200, 16, 12}, Sizes{63, 3, 70});
  const int options = GENERATE(0, 1, 3, 4, 7);
  CAPTURE(dtype, sizes.seq, sizes.key_dim, sizes.value_dim, options);
  Trial trial({}, types_of(dtype, sizes));
  trace_recurrence(trial, neg(square(trial.inputs()[3])), sigmoid(trial.inputs()[4]), options);
  KernelCheck check = check_of(dtype);
  check.max_integer = 2;
  check.threads = options + 1;
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("linear recurrences with strong and no decay, and beta of 0 and 2, stay exact") {
  const std::string dtype = GENERATE("f32", "bf16");
  const int options = GENERATE(4, 5);
  CAPTURE(dtype, options);
  const Sizes sizes{150, 16, 16};
  Trial trial({}, types_of(dtype, sizes));
  const std::vector<Tensor>& in = trial.inputs();
  trace_recurrence(trial, in[3], in[4], options);
  std::vector<double> log_decay(2 * 150 * 3), beta(log_decay.size());
  for (size_t i = 0; i < log_decay.size(); ++i) {
    log_decay[i] = i % 7 == 0 ? -100.0 : i % 5 == 0 ? -0.3 : 0.0;
    beta[i] = i % 3 == 0 ? 0.0 : i % 11 == 0 ? 2.0 : 0.5;
  }
  KernelCheck check = check_of(dtype);
  check.given = {{"u", log_decay}, {"v", beta}};
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

// Applies the op to a part of q, k, v, log_decay and beta along an axis.
LinearRecurrence of_part(const std::vector<Tensor>& in, std::string_view axis, int64_t begin,
                         int64_t end, const LinearRecurrenceOptions& options) {
  std::vector<Tensor> x;
  for (const Tensor& each : {in[0], unit_keys(in[1]), in[2], neg(square(in[3])), sigmoid(in[4])})
    x.push_back(slice(each, axis, begin, end));
  return linear_recurrence(x[0], x[1], x[2], x[3], x[4], options);
}

TEST_CASE("a sequence in two calls, with the state handed over, gives the results of one") {
  const int first = GENERATE(1, 64, 77, 199);
  const bool delta = GENERATE(false, true);
  CAPTURE(first, delta);
  Trial trial({}, types_of("f32", {200, 20, 12}));
  const auto part = [&](int64_t begin, int64_t end, const Tensor& state) {
    return of_part(trial.inputs(), "seq", begin, end, {.delta = delta, .state = state});
  };
  const Tensor& state = trial.inputs()[6];
  const LinearRecurrence whole = part(0, 200, state), before = part(0, first, state),
                         after = part(first, 200, before.state);
  output("whole", whole.out);
  output("whole state", whole.state);
  output("parts", concat({before.out, after.out}, "seq"));
  output("state of parts", after.state);
  auto results = run_on_cpu(trial.graph(), random_inputs(trial.graph(), 3), *make_cpu_device(2));
  const auto is_near = [](double x, double y) { return std::abs(x - y) < 2e-5; };
  REQUIRE(std::ranges::equal(results["whole"], results["parts"], is_near));
  REQUIRE(std::ranges::equal(results["whole state"], results["state of parts"], is_near));
}

TEST_CASE("the bits of a linear recurrence do not depend on other rows and heads") {
  const int seq = GENERATE(1, 90);
  const std::string axis = GENERATE("batch", "heads");
  CAPTURE(seq, axis);
  Trial trial({}, types_of("bf16", {seq, 20, 12}));
  const Tensor& state = trial.inputs()[6];
  const LinearRecurrence all = of_part(trial.inputs(), "seq", 0, seq, {.state = state}),
                         one = of_part(trial.inputs(), axis, 1, 2,
                                       {.state = slice(state, axis, 1, 2)});
  output("one of all", slice(all.out, axis, 1, 2));
  output("one", one.out);
  auto results = run_on_cpu(trial.graph(), random_inputs(trial.graph(), 3), *make_cpu_device(2));
  REQUIRE(results["one of all"] == results["one"]);
}

}  // namespace
}  // namespace tessera
