// SPDX-License-Identifier: Apache-2.0
// GatedDeltaNet against a plain implementation of packed rows, its gradients against finite
// differences, its layouts on meshes, and what it refuses.
#include "layers/attention/gated_delta_net.h"

#include <cmath>

#include "core/base/error.h"
#include "tasks/task/config/experiment.h"
#include "tasks/testing/tested_layer.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr size_t kRows = 2, kTokens = 6, kWidth = 4, kHeads = 4, kKvHeads = 2, kGroup = 2;
constexpr size_t kKeys = 3, kCols = 2, kAll = kRows * kTokens;

const Values kSegments = {1, 1, 2, 2, 2, 3, 1, 1, 1, 1, 0, 0};

GatedDeltaNet::HParams variant(int64_t conv_width, bool delta) {
  return {.model_dims = kWidth,
          .num_heads = kHeads,
          .num_kv_heads = kKvHeads,
          .dims_per_head = kKeys,
          .value_dims_per_head = kCols,
          .conv_width = conv_width,
          .use_delta_rule = delta,
          .norm_epsilon = 1e-2};
}

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The plain implementation. A weight is looked up by name; it and all results are row-major.
class Plain {
 public:
  Plain(const GatedDeltaNet::HParams& p, const ReferenceInputs& in) : p_(p), in_(in) {}

  Values result() const {
    const Values q = channel("query", kKvHeads * kKeys), k = channel("key", kKvHeads * kKeys),
                 v = channel("value", kHeads * kCols), z = projected("gate", kHeads * kCols),
                 a = projected("decay", kHeads), b = projected("beta", kHeads);
    Values y(kAll * kWidth);
    for (size_t row = 0; row < kRows; ++row)
      for (size_t head = 0; head < kHeads; ++head) {
        Values state(kKeys * kCols);
        for (size_t t = row * kTokens; t < (row + 1) * kTokens; ++t) {
          if (t > row * kTokens && kSegments[t] != kSegments[t - 1]) state.assign(kKeys * kCols, 0);
          const size_t gate = t * kHeads + head, key = (t * kKvHeads + head / kGroup) * kKeys;
          const double rate = std::exp(at("log_rate", head)),
                       open = std::log1p(std::exp(a[gate] + at("decay_bias", head)));
          for (double& each : state) each *= std::exp(-rate * open);
          add_output(step(&state, &q[key], &k[key], &v[gate * kCols], sigmoid_of(b[gate])),
                     &z[gate * kCols], head, &y[t * kWidth]);
        }
      }
    return y;
  }

 private:
  double at(const std::string& name, size_t i) const { return in_.at(name)[i]; }

  Values projected(const std::string& name, size_t columns) const {
    Values y(kAll * columns);
    for (size_t t = 0; t < kAll; ++t)
      for (size_t c = 0; c < columns; ++c)
        for (size_t e = 0; e < kWidth; ++e)
          y[t * columns + c] += at("x", t * kWidth + e) * at(name, e * columns + c);
    return y;
  }

  // Projected, convolved within segments, and activated.
  Values channel(const std::string& name, size_t columns) const {
    const Values x = projected(name, columns);
    const auto width = static_cast<size_t>(p_.conv_width);
    Values y(x.size());
    for (size_t t = 0; t < kAll; ++t)
      for (size_t c = 0; c < columns; ++c) {
        double sum = 0.0;
        for (size_t back = 0; back < width && back <= t % kTokens; ++back)
          if (kSegments[t - back] == kSegments[t])
            sum +=
                x[(t - back) * columns + c] * at(name + "_conv", (width - 1 - back) * columns + c);
        y[t * columns + c] = sum * sigmoid_of(sum);
      }
    return y;
  }

  // Moves the state by one token, and returns what its query reads.
  Values step(Values* state, const double* q, const double* k, const double* v, double beta) const {
    double of_q = 1e-6, of_k = 1e-6;
    for (size_t i = 0; i < kKeys; ++i) {
      of_q += q[i] * q[i];
      of_k += k[i] * k[i];
    }
    Values out(kCols);
    for (size_t c = 0; c < kCols; ++c) {
      double value = v[c];
      for (size_t i = 0; p_.use_delta_rule && i < kKeys; ++i)
        value -= (*state)[i * kCols + c] * k[i] / std::sqrt(of_k);
      for (size_t i = 0; i < kKeys; ++i) {
        (*state)[i * kCols + c] += k[i] / std::sqrt(of_k) * beta * value;
        out[c] += (*state)[i * kCols + c] * q[i] / std::sqrt(of_q * kKeys);
      }
    }
    return out;
  }

  void add_output(const Values& out, const double* z, size_t head, double* y) const {
    double square = 0.0;
    for (const double each : out) square += each * each / kCols;
    for (size_t c = 0; c < kCols; ++c) {
      const double gated = out[c] / std::sqrt(square + p_.norm_epsilon) * at("norm.scale", c) *
                           z[c] * sigmoid_of(z[c]);
      for (size_t e = 0; e < kWidth; ++e)
        y[e] += gated * at("output", (head * kCols + c) * kWidth + e);
    }
  }

  const GatedDeltaNet::HParams& p_;
  const ReferenceInputs& in_;
};

// Different values for every weight and for x.
ReferenceInputs numbers(const GatedDeltaNet::HParams& p) {
  return distinct_values(Template<SequenceLayer>(p).instantiate()->parameters(),
                         {{"x", kAll * kWidth}});
}

TestedLayer tested(const GatedDeltaNet::HParams& p, LayerSetting setting = {}) {
  setting.values = numbers(p);
  setting.values["segment_ids"] = kSegments;
  return TestedLayer(
      Template<SequenceLayer>(p),
      {{"x", "f32[\"batch=2 seq=6 embed=4\"]"}, {"segment_ids", "i32[\"batch=2 seq=6\"]"}},
      [](const SequenceLayer& layer, const NamedTensors& in) {
        return layer(in.at("x"), {.segment_ids = in.at("segment_ids")});
      },
      setting);
}

const std::string kByHeads = "heads -> mdl, kv_heads -> mdl";

std::vector<LayerSetting> meshes() {
  const MeshConfig four{.ici_mesh_shape = {1, 2, 2}};
  return {{.mesh = four,
           .rules = {.weights = "embed -> data, " + kByHeads,
                     .activations = "residual: seq -> mdl, batch -> data, " + kByHeads}},
          {.mesh = four,  // Query heads are whole, heads are split.
           .rules = {.weights = "heads -> mdl", .activations = "batch -> data, heads -> mdl"}},
          {.mesh = four,  // Each device has a part of the sequence, and all-to-alls give it heads.
           .rules = {.weights = "embed -> mdl",
                     .activations = "batch -> data, seq -> mdl, attention: seq -> (), attention: "
                                    "heads -> mdl, attention: kv_heads -> mdl"}},
          {.mesh = four, .rules = {.activations = "batch -> data, seq -> mdl"}}};  // Gathered.
}

TEST_CASE("Gated DeltaNet is what a plain implementation computes, on one device and on four") {
  for (const auto& p : {variant(4, true), variant(3, false), variant(1, true), variant(9, true)}) {
    INFO("convolution of " << p.conv_width << ", delta rule " << p.use_delta_rule);
    const ReferenceInputs values = numbers(p);
    const Values expected = Plain(p, values).result();
    require_close(tested(p).result(), expected, 1e-9);
    for (const LayerSetting& setting : meshes()) {
      INFO("activations: " << setting.rules.activations);
      require_close(tested(p, setting).result(), expected, 1e-9);
    }
  }
}

TEST_CASE("Gated DeltaNet's gradients are those of finite differences, also on a mesh") {
  tested(variant(3, false)).check_gradients();
  tested(variant(4, true)).check_gradients();
  for (const LayerSetting& setting : meshes()) {
    INFO("activations: " << setting.rules.activations);
    tested(variant(4, true), setting).check_gradients();
  }
}

TEST_CASE("Gated DeltaNet refuses sizes that make no sense") {
  const auto refusal = [](auto change) {
    GatedDeltaNet::HParams p = variant(4, true);
    change(p);
    return error_of([&] { Template<SequenceLayer>(p).instantiate(); });
  };
  using P = GatedDeltaNet::HParams;
  REQUIRE(refusal([](P& p) { p.num_kv_heads = 3; }) ==
          "num_kv_heads=3 does not divide num_heads=4; heads share keys in equal groups");
  REQUIRE(refusal([](P& p) {
            p.num_heads = 6;
            p.dims_per_head = {};
          }) == "num_heads=6 does not divide model_dims=4; change one, or set dims_per_head");
  REQUIRE_THAT(refusal([](P& p) { p.conv_width = 0; }),
               Contains("GatedDeltaNet: conv_width is 0, expected 1 to"));
}

}  // namespace
}  // namespace tessera
