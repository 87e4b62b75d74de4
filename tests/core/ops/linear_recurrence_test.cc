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

// What `set` makes of the values of a head's token, whose number is `token`.
using SetToken = void (*)(ReferenceInputs& in, size_t token, size_t head);

struct Evaluated {
  ReferenceInputs in;
  Values out, state;
};

Evaluated evaluated(const Setting& with, SetToken set = nullptr) {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  const TraceScope scope(graph, mesh, rules);
  std::map<std::string, Tensor> in;
  for (const auto& [name, type] : types_of(with.seq))
    in[name] = input(name, InputKind::kBatch, parse_type(type));
  LinearRecurrenceOptions more{.delta = with.delta};
  if (with.segments) more.segment_ids = in["ids"];
  if (with.state) more.state = in["state"];
  const LinearRecurrence y =
      linear_recurrence(in["q"], in["k"], in["v"], in["log_decay"], in["beta"], more);
  output("out", y.out);
  output("state", y.state);
  ReferenceInputs values = operands(graph);
  for (size_t i = 0; set != nullptr && i < kBatch * with.seq * kHeads; ++i)
    set(values, i, i % kHeads);
  const auto results = evaluate(graph, values, mesh);
  return {values, results.at("out").values, results.at("state").values};
}

void require_near(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) REQUIRE(std::abs(a[i] - b[i]) < 1e-12);
}

TEST_CASE("linear_recurrence is its definition, token by token") {
  for (const size_t seq : {1, 2, 13, 64, 67, 130})
    for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const Setting with{seq, options % 2 == 1, options / 2 % 2 == 1, options / 4 == 1};
      INFO(seq << " tokens, options " << options);
      const Evaluated op = evaluated(with);
      const auto [out, state] = defined(with, op.in);
      require_near(op.out, out);
      require_near(op.state, state);
    }
}

constexpr size_t kLong = 150;  // Tokens; more than two chunks.

// Sun et al., 2023, equation 8.
double retention_decay(size_t head) { return 1.0 - std::exp2(-5.0 - static_cast<double>(head)); }

// Their equation 5: (QK^T ⊙ D)V with D_nm = γ^(n-m) for n >= m.
TEST_CASE("RetNet's retention is linear_recurrence with a constant decay") {
  const Evaluated op =
      evaluated({.seq = kLong}, [](ReferenceInputs& in, size_t token, size_t head) {
        in.at("log_decay")[token] = std::log(retention_decay(head));
        in.at("beta")[token] = 1.0;
      });
  Values out(op.out.size());
  for (size_t row = 0; row < kBatch * kHeads; ++row)
    for (size_t n = 0; n < kLong; ++n)
      for (size_t m = 0; m <= n; ++m) {
        const auto token = [&](size_t t) {
          return (row / kHeads * kLong + t) * kHeads + row % kHeads;
        };
        double weight = 0.0;
        for (size_t k = 0; k < kKeys; ++k)
          weight += op.in.at("q")[token(n) * kKeys + k] * op.in.at("k")[token(m) * kKeys + k];
        weight *= std::pow(retention_decay(row % kHeads), static_cast<double>(n - m));
        for (size_t c = 0; c < kCols; ++c)
          out[token(n) * kCols + c] += weight * op.in.at("v")[token(m) * kCols + c];
      }
  require_near(op.out, out);
}

// Dao and Gu, 2024, equation 1, with steps Δ_t: h = exp(Δ_t·A)·h + Δ_t·B_t·x_t^T, y_t = h^T·C_t.
// Each head has its own A and Δ_t; all share B_t and C_t.
TEST_CASE("Mamba-2's recurrence is linear_recurrence with a decay of each head and token") {
  static constexpr double kSlopes[kHeads] = {-1.0, -16.0};  // A.
  const Evaluated op =
      evaluated({.seq = kLong}, [](ReferenceInputs& in, size_t token, size_t head) {
        double& step = in.at("beta")[token];
        step = 0.01 + 0.3 * step;
        in.at("log_decay")[token] = step * kSlopes[head];
        for (const char* name : {"q", "k"})
          for (size_t k = 0; k < kKeys; ++k)
            in.at(name)[token * kKeys + k] = in.at(name)[(token - head) * kKeys + k];
      });
  Values out(op.out.size());
  for (size_t row = 0; row < kBatch * kHeads; ++row) {
    double h[kKeys][kCols] = {};
    for (size_t t = 0; t < kLong; ++t) {
      const size_t first = (row / kHeads * kLong + t) * kHeads, token = first + row % kHeads;
      const double step = op.in.at("beta")[token];
      for (size_t k = 0; k < kKeys; ++k)
        for (size_t c = 0; c < kCols; ++c) {
          h[k][c] *= std::exp(step * kSlopes[row % kHeads]);
          h[k][c] += step * op.in.at("k")[first * kKeys + k] * op.in.at("v")[token * kCols + c];
          out[token * kCols + c] += h[k][c] * op.in.at("q")[first * kKeys + k];
        }
    }
  }
  require_near(op.out, out);
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
