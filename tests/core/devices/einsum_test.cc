// SPDX-License-Identifier: Apache-2.0
// einsum against the reference for all orders of axes, odd sizes and both dtypes.
#include "core/ops/einsum.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/run_graph.h"
#include "core/devices/contraction.h"
#include "core/devices/cpu/device.h"
#include "core/ops/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// "a=3 b" with sizes for each axis of `names`.
std::string sized(const std::string& dtype, const std::string& names,
                  const std::map<char, int>& sizes) {
  std::string text = dtype + "[\"";
  for (const char name : names) {
    if (name != ' ') text += fmt::format("{}={} ", name, sizes.at(name));
  }
  return text + "\"]";
}
std::string spaced(std::string names) {
  std::string text;
  for (const char name : names) text += std::string(text.empty() ? "" : " ") + name;
  return text;
}

std::string difference(const std::string& dtype, const std::string& x, const std::string& y,
                       const std::string& z, const std::map<char, int>& sizes) {
  static const std::unique_ptr<Device> device = make_cpu_device(3);
  Trial trial(Mesh(), {sized(dtype, x, sizes), sized(dtype, y, sizes)});
  const std::string equation = spaced(x) + ", " + spaced(y) + " -> " + spaced(z);
  const Tensor result = einsum(equation, trial.inputs()[0], trial.inputs()[1]);
  trial.graph().add_output("z", result.id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 7);
  const std::string message =
      difference_from_reference(trial.graph(), inputs, *device, {.relative = 2e-6});
  return message.empty() ? "" : equation + ": " + message;
}

// Batch b, rows m and p, columns n and q, contracted k and l.
const std::vector<std::map<char, int>> kSizes = {
    {{'b', 3}, {'m', 5}, {'p', 2}, {'n', 7}, {'q', 3}, {'k', 6}, {'l', 4}},
    {{'b', 1}, {'m', 130}, {'p', 3}, {'n', 65}, {'q', 2}, {'k', 33}, {'l', 5}},
    {{'b', 7}, {'m', 1}, {'p', 1}, {'n', 33}, {'q', 1}, {'k', 17}, {'l', 1}},
    {{'b', 2}, {'m', 17}, {'p', 1}, {'n', 1}, {'q', 1}, {'k', 1}, {'l', 1}},
};

TEST_CASE("matrix products in every order of axes") {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& sizes : kSizes) {
      for (const char* x : {"mk", "km"}) {
        for (const char* y : {"kn", "nk"}) {
          for (const char* z : {"mn", "nm"}) REQUIRE(difference(dtype, x, y, z, sizes) == "");
        }
      }
    }
  }
}

TEST_CASE("batched products in every order of axes") {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& sizes : kSizes) {
      std::string x = "bkm";
      do {
        std::string y = "bkn";
        do {
          for (const char* z : {"bmn", "bnm", "mbn", "mnb", "nbm", "nmb"}) {
            REQUIRE(difference(dtype, x, y, z, sizes) == "");
          }
        } while (std::next_permutation(y.begin(), y.end()));
      } while (std::next_permutation(x.begin(), x.end()));
    }
  }
}

TEST_CASE("groups of axes, contiguous or not, and no contracted axis") {
  const char* const cases[][3] = {
      {"bmkl", "klnq", "bmnq"}, {"bmnq", "klnq", "bmkl"}, {"bmkl", "bmnq", "klnq"},
      {"bmpk", "bnpk", "bpmn"}, {"kmlp", "lnkq", "mnpq"}, {"mkpl", "qlnk", "qpnm"},
      {"bm", "bm", "b"},        {"bm", "bm", ""},         {"m", "n", "mn"},
      {"bm", "b", "m"},         {"bm", "bn", "bmn"},      {"bmk", "k", "bm"},
      {"bm", "bm", "bm"},
  };
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& sizes : kSizes) {
      for (const auto& [x, y, z] : cases) {
        REQUIRE(difference(dtype, x, y, z, sizes) == "");
      }
    }
  }
}

TEST_CASE("the products of a transformer are not packed") {
  const char* const cases[][3] = {
      {"f32[\"b=2 s=8 e=6\"]", "f32[\"e=6 h=2 d=4\"]", "b s h d"},
      {"f32[\"b=2 s=8 h=2 d=4\"]", "f32[\"h=2 d=4 e=6\"]", "b s e"},
      {"f32[\"b=2 s=8 e=6\"]", "f32[\"v=9 e=6\"]", "b s v"},
      {"f32[\"b=2 s=8 h=2 d=4\"]", "f32[\"e=6 h=2 d=4\"]", "b s e"},
      {"f32[\"b=2 s=8 h=2 d=4\"]", "f32[\"b=2 s=8 e=6\"]", "e h d"},
      {"f32[\"b=2 s=8 v=9\"]", "f32[\"b=2 s=8 e=6\"]", "v e"},
  };
  for (const auto& [x, y, z] : cases) {
    Trial trial(Mesh(), {x, y});
    const Tensor a = trial.inputs()[0], b = trial.inputs()[1];
    const std::string equation = fmt::format("{}, {} -> {}", fmt::join(a.type().names(), " "),
                                             fmt::join(b.type().names(), " "), z);
    INFO(equation);
    einsum(equation, a, b);
    const Contraction found = make_contraction(trial.graph(), trial.graph().nodes().back());
    REQUIRE_FALSE(found.pack_a.has_value());
    REQUIRE_FALSE(found.pack_b.has_value());
    REQUIRE_FALSE(found.pack_c.has_value());
    REQUIRE(found.batches() == 1);
  }
}

}  // namespace
}  // namespace tessera
