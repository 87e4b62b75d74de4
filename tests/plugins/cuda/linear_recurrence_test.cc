// SPDX-License-Identifier: Apache-2.0
// Tests linear_recurrence and its gradient on the virtual GPU: every op case, lines of one thread
// and of several, in one block and in several, aligned and not, and extreme decays and betas.
#include "core/ops/linear_recurrence.h"

#include <cmath>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/ops/elementwise.h"
#include "core/ops/order.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

TEST_CASE("cases of linear_recurrence agree with the reference on the virtual GPU") {
  const TestDevices devices;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kLinearRecurrenceOp && row.op != &kLinearRecurrenceGradOp) continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
  }
}

struct Sizes {
  int batch, seq, heads, key_dim, value_dim;
};

// A trace of the inputs q to v and the names of the others: log_decay "u", beta "v", differences of
// segment ids "w" and a state "a".
class RecurrenceTrial : public Trial {
 public:
  RecurrenceTrial(const std::string& dtype, const Sizes& s)
      : Trial({},
              {tensor(dtype, s, fmt::format(" key_dim={}", s.key_dim)),
               tensor(dtype, s, fmt::format(" key_dim={}", s.key_dim)),
               tensor(dtype, s, fmt::format(" value_dim={}", s.value_dim)), tensor("f32", s, ""),
               tensor("f32", s, ""), fmt::format("i32[\"batch={} seq={}\"]", s.batch, s.seq),
               fmt::format("f32[\"batch={} heads={} key_dim={} value_dim={}\"]", s.batch, s.heads,
                           s.key_dim, s.value_dim)}) {}

  // Traces the op and its gradient; `final`: that of the last state, too.
  void trace(bool delta, bool segments, bool state, bool final) {
    const Tensors& in = inputs();
    LinearRecurrenceOptions options{.delta = delta};
    if (segments) options.segment_ids = cumulative_sum(in[5], "seq");
    if (state) options.state = in[6];
    const LinearRecurrence y = linear_recurrence(in[0], in[1], in[2], in[3], in[4], options);
    const Node node(graph().node(graph().value(y.out.id()).producer));
    Tensors operands;
    for (const ValueId id : node.inputs) operands.emplace_back(&graph(), id);
    const Tensors results = {y.out, y.state}, cotangents = {in[2], final ? in[6] : Tensor()};
    node.op->vjp({node, operands, results, cotangents});
  }

 private:
  static std::string tensor(const std::string& dtype, const Sizes& s, const std::string& last) {
    return fmt::format("{}[\"batch={} seq={} heads={}{}\"]", dtype, s.batch, s.seq, s.heads, last);
  }
};

// Values from `choices`, in an irregular order.
std::vector<double> chosen(const Sizes& s, const std::vector<double>& choices) {
  std::vector<double> values(static_cast<size_t>(s.batch * s.seq * s.heads));
  for (size_t i = 0; i < values.size(); ++i) values[i] = choices[(i * i / 3 + i) % choices.size()];
  return values;
}

TEST_CASE("linear_recurrence of every size agrees with its decomposition on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const int64_t offset = GENERATE(0, 1);
  for (const Sizes& s : {Sizes{2, 37, 3, 1, 40},
                         {1, 18, 2, 33, 70},
                         {1, 40, 2, 64, 64},
                         {1, 17, 1, 256, 24},
                         {2, 9, 1, 24, 136},
                         {1, 5, 1, 512, 8},
                         {1, 6, 1, 3, 511}}) {
    CAPTURE(dtype, offset, s.key_dim, s.value_dim);
    RecurrenceTrial trial(dtype, s);
    trial.trace(s.seq % 2 == 1, s.heads > 1, s.seq < 20, s.seq < 18);
    const double length = std::sqrt(s.key_dim);
    REQUIRE(
        kernel_mismatch(trial.graph(), {.max_integer = 2,
                                        .spread = 1.0 / length,  // Keys have a length of about 1.
                                        .given = {{"u", chosen(s, {-0.1, -0.01, -1.0, 0.0, -0.3})},
                                                  {"v", chosen(s, {0.5, 1.0, 0.1})}},
                                        .device = devices.gpu.get(),
                                        .offset = offset}) == "");
  }
}

TEST_CASE("linear_recurrence with extreme decays and betas on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const std::vector<double> decays = GENERATE(std::vector<double>{-100.0}, std::vector<double>{0.0},
                                              std::vector<double>{0.0, -100.0, -1e-3, -20.0});
  const std::vector<double> betas =
      GENERATE(std::vector<double>{0.0}, std::vector<double>{2.0}, std::vector<double>{0.0, 2.0});
  const Sizes s{2, 70, 2, 16, 24};
  CAPTURE(dtype, decays, betas);
  for (const bool delta : {false, true}) {
    RecurrenceTrial trial(dtype, s);
    trial.trace(delta, false, true, true);
    // Where nothing passes to the next token, the terms of dlog_decay, of about 1, cancel.
    const double tolerance = decays[0] == -100.0 ? 5e-3 : 2e-5;
    REQUIRE(kernel_mismatch(trial.graph(),
                            {.tolerance_f32 = tolerance,
                             .spread = 0.25,
                             .given = {{"u", chosen(s, decays)}, {"v", chosen(s, betas)}},
                             .device = devices.gpu.get()}) == "");
  }
}

// Sums of dlog_decay over many tokens keep their precision.
TEST_CASE("linear_recurrence of a long sequence on the virtual GPU") {
  const TestDevices devices;
  const Sizes s{1, 1500, 1, 8, 8};
  RecurrenceTrial trial("f32", s);
  trial.trace(true, false, false, false);
  REQUIRE(kernel_mismatch(trial.graph(), {.spread = 0.35,
                                          .given = {{"u", chosen(s, {-0.1, -2.0, -0.01, -5.0})},
                                                    {"v", chosen(s, {0.5, 1.0, 0.1})}},
                                          .device = devices.gpu.get()}) == "");
}

TEST_CASE("linear_recurrence with wide heads is refused on CUDA, with advice") {
  const TestDevices devices;
  RecurrenceTrial trial("bf16", {1, 2, 1, 8, 520});
  trial.trace(true, false, false, false);
  const std::string error =
      error_of([&] { devices.gpu->prepare(trial.graph(), trial.graph().nodes().front()); });
  REQUIRE(error.find("value_dim is 520") != std::string::npos);
  REQUIRE(error.find("at most 512: choose smaller heads") != std::string::npos);
}

}  // namespace
}  // namespace tessera::cuda
