// SPDX-License-Identifier: Apache-2.0
// linear_recurrence against its definition, token by token, and its type rule.
#include "core/ops/linear_recurrence.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/check/run_graph.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/trace.h"
#include "tests/support/catch.h"
#include "tests/support/typing_rows.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

constexpr size_t kBatch = 2, kHeads = 2, kKeys = 3, kCols = 2;

struct Setting {
  size_t seq;
  bool delta, segments, state;
};

// Results of the definition: out and state, in the order of their axes.
std::pair<Values, Values> defined(const Setting& with, const ReferenceInputs& in) {
  Values out(kBatch * with.seq * kHeads * kCols), last(kBatch * kHeads * kKeys * kCols);
  const auto at = [&](const char* name, size_t i) { return in.at(name)[i]; };
  for (size_t row = 0; row < kBatch * kHeads; ++row) {
    const size_t b = row / kHeads, h = row % kHeads;
    Values s(kKeys * kCols);
    for (size_t i = 0; with.state && i < s.size(); ++i) s[i] = at("state", row * s.size() + i);
    for (size_t t = 0; t < with.seq; ++t) {
      const size_t token = (b * with.seq + t) * kHeads + h, id = b * with.seq + t;
      const bool begins = with.segments && t > 0 && at("ids", id) != at("ids", id - 1);
      for (double& each : s) each *= begins ? 0.0 : std::exp(at("log_decay", token));
      for (size_t c = 0; c < kCols; ++c) {
        double value = at("v", token * kCols + c);
        for (size_t k = 0; with.delta && k < kKeys; ++k)
          value -= s[k * kCols + c] * at("k", token * kKeys + k);
        for (size_t k = 0; k < kKeys; ++k)
          s[k * kCols + c] += at("k", token * kKeys + k) * at("beta", token) * value;
        for (size_t k = 0; k < kKeys; ++k)
          out[token * kCols + c] += s[k * kCols + c] * at("q", token * kKeys + k);
      }
    }
    std::ranges::copy(s, last.begin() + static_cast<std::ptrdiff_t>(row * s.size()));
  }
  return {out, last};
}

std::map<std::string, std::string> types_of(size_t seq) {
  const std::string tokens = fmt::format("f64[\"batch=2 seq={} heads=2", seq);
  return {{"q", tokens + " key_dim=3\"]"},
          {"k", tokens + " key_dim=3\"]"},
          {"v", tokens + " value_dim=2\"]"},
          {"log_decay", tokens + "\"]"},
          {"beta", tokens + "\"]"},
          {"state", "f64[\"batch=2 heads=2 key_dim=3 value_dim=2\"]"},
          {"ids", fmt::format("i32[\"batch=2 seq={}\"]", seq)}};
}

// Keys of at most length 1, decays below 1, and segments of 7 tokens.
ReferenceInputs operands(const Graph& graph) {
  ReferenceInputs in = sample_inputs(graph);
  for (double& each : in.at("k")) each = 0.5 * std::sin(9.0 * each);
  for (double& each : in.at("log_decay")) each = -0.2 * each * each;
  for (double& each : in.at("beta")) each = 1.0 / (1.0 + each * each);
  for (size_t i = 0; i < in.at("ids").size(); ++i) in.at("ids")[i] = static_cast<double>(i / 7);
  return in;
}

TEST_CASE("linear_recurrence is its definition, token by token") {
  for (const size_t seq : {1, 2, 13, 64, 67, 130})
    for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const Setting with{seq, options % 2 == 1, options / 2 % 2 == 1, options / 4 == 1};
      INFO(seq << " tokens, options " << options);
      const Mesh mesh;
      const AxisRules rules;
      Graph graph;
      const TraceScope scope(graph, mesh, rules);
      std::map<std::string, Tensor> in;
      for (const auto& [name, type] : types_of(seq))
        in[name] = input(name, InputKind::kBatch, parse_type(type));
      LinearRecurrenceOptions more{.delta = with.delta};
      if (with.segments) more.segment_ids = in["ids"];
      if (with.state) more.state = in["state"];
      const LinearRecurrence y =
          linear_recurrence(in["q"], in["k"], in["v"], in["log_decay"], in["beta"], more);
      output("out", y.out);
      output("state", y.state);
      const ReferenceInputs values = operands(graph);
      const auto results = evaluate(graph, values, mesh);
      const auto [out, state] = defined(with, values);
      for (size_t i = 0; i < out.size(); ++i)
        REQUIRE(std::abs(results.at("out").values[i] - out[i]) < 1e-12);
      for (size_t i = 0; i < state.size(); ++i)
        REQUIRE(std::abs(results.at("state").values[i] - state[i]) < 1e-12);
    }
}

TEST_CASE("linear_recurrence: batch and heads may be split, nothing else") {
  const auto row = [](const std::string& axes) { return "bf16[\"" + axes + "\"]"; };
  const std::string q = row("batch/data=4 seq=6 heads/mdl=4 key_dim=3"),
                    v = row("batch/data=4 seq=6 heads/mdl=4 value_dim=2"),
                    gate = "f32[\"batch/data=4 seq=6 heads/mdl=4\"]";
  run("linear_recurrence",
      [](const std::vector<Tensor>& t) {
        return linear_recurrence(t[0], t[1], t[2], t[3], t[3]).out;
      },
      {{{q, q, v, gate}, "bf16[\"batch/data seq heads/mdl value_dim\"]"},
       {{row("batch=4 seq/data=6 heads=4 key_dim=3"), row("batch=4 seq/data=6 heads=4 key_dim=3"),
         row("batch=4 seq/data=6 heads=4 value_dim=2"), row("batch=4 seq/data=6 heads=4")},
        "linear_recurrence: seq of x is split over data; reshard it to unsplit seq"},
       {{q, row("batch/data=4 seq=6 heads=4 key_dim=3"), v, gate},
        "linear_recurrence: y is bf16[\"batch/data=4 seq=6 heads=4 key_dim=3\"], expected "
        "bf16[\"batch/data=4 seq=6 heads/mdl=4 key_dim=3\"]; reshard y to \"batch/data seq "
        "heads/mdl "
        "key_dim\""},
       {{q, q, row("batch/data=4 seq=6 heads/mdl=4 head_dim=2"), gate},
        "linear_recurrence: z is bf16[\"batch/data seq heads/mdl head_dim\"], expected the axes "
        "\"batch seq heads value_dim\" in this order; rename or transpose it"},
       {{q, q, v, "f32[\"batch/data=4 seq=6 heads=4\"]"},
        "linear_recurrence: u is f32[\"batch/data=4 seq=6 heads=4\"], expected "
        "f32[\"batch/data=4 seq=6 heads/mdl=4\"]; reshard u to \"batch/data seq heads/mdl\""}});
}

}  // namespace
}  // namespace tessera
