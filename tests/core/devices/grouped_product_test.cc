// SPDX-License-Identifier: Apache-2.0
// grouped_product and grouped_outer_product of several tiles, against the einsum of the rows of
// each expert: the same bits on any number of threads.
#include "core/ops/grouped_product.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/devices/cpu/device.h"
#include "core/ops/einsum.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Numbers = std::vector<double>;

constexpr int64_t kExperts = 4, kEmbed = 131, kMlp = 549;

// Applies an op to operands of these types and values on a CPU device of some threads.
Numbers result_of(const std::vector<std::string>& types, const std::vector<Numbers>& values,
                  int threads, const Application& apply) {
  const auto device = make_cpu_device(threads);
  Trial trial(Mesh(), types);
  trial.graph().add_output("y", apply(trial.inputs()).id());
  ReferenceInputs inputs;
  for (size_t i = 0; i < types.size(); ++i) inputs[trial.graph().inputs()[i].name] = values[i];
  return run_on_cpu(trial.graph(), inputs, *device).at("y");
}

Numbers numbers(int64_t count, double step) {
  Numbers made;
  for (int64_t i = 0; i < count; ++i) made.push_back(std::sin(step * static_cast<double>(i)));
  return made;
}

// The first choice of 3 tokens in 4 is expert 2, and expert 1 has no rows.
Numbers unbalanced_ids(int64_t tokens) {
  const Numbers others = {0, 3, -1, kExperts};
  Numbers ids;
  for (int64_t token = 0; token < tokens; ++token) {
    ids.push_back(token % 4 == 3 ? 3 : 2);
    ids.push_back(others[static_cast<size_t>(token % 4)]);
  }
  return ids;
}

struct Routed {
  explicit Routed(int64_t tokens)
      : tokens(tokens),
        ids(unbalanced_ids(tokens)),
        x(numbers(tokens * kEmbed, 0.7)),
        dy(numbers(2 * tokens * kMlp, 0.9)) {}

  // The choices of an expert, in order.
  std::vector<int64_t> rows_of(int64_t expert) const {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == static_cast<double>(expert)) rows.push_back(static_cast<int64_t>(i));
    return rows;
  }

  int64_t tokens;
  Numbers ids, x, dy;
};

// Rows of `width` numbers of `from`; of x, two choices share a row.
Numbers gathered(const Numbers& from, int64_t width, const std::vector<int64_t>& rows,
                 int64_t choices_of_a_row) {
  Numbers made;
  for (const int64_t row : rows) {
    const auto begin = from.begin() + row / choices_of_a_row * width;
    made.insert(made.end(), begin, begin + width);
  }
  return made;
}

int64_t differences(const Numbers& a, const Numbers& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

void check_product(const std::string& dtype, int64_t tokens, bool transposed, int threads) {
  const Routed routed(tokens);
  const std::string axes = transposed ? fmt::format("mlp={} embed={}", kMlp, kEmbed)
                                      : fmt::format("embed={} mlp={}", kEmbed, kMlp);
  const Numbers weights = numbers(kExperts * kEmbed * kMlp, 0.3);
  const Numbers got =
      result_of({fmt::format("{}[\"token={} embed={}\"]", dtype, tokens, kEmbed),
                 fmt::format("{}[\"experts={} {}\"]", dtype, kExperts, axes),
                 fmt::format("i32[\"token={} top_k=2\"]", tokens)},
                {routed.x, weights, routed.ids}, threads, [](const std::vector<Tensor>& in) {
                  return grouped_product(in[0], in[1], in[2], "experts", over("embed"));
                });
  Numbers expected(got.size(), 0.0);
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const std::vector<int64_t> rows = routed.rows_of(expert);
    if (rows.empty()) continue;
    const auto matrix = weights.begin() + expert * kEmbed * kMlp;
    const Numbers products = result_of(
        {fmt::format("{}[\"row={} embed={}\"]", dtype, rows.size(), kEmbed),
         fmt::format("{}[\"{}\"]", dtype, axes)},
        {gathered(routed.x, kEmbed, rows, 2), Numbers(matrix, matrix + kEmbed * kMlp)}, 1,
        [](const std::vector<Tensor>& in) { return einsum(in[0], in[1], over("embed")); });
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(products.begin() + static_cast<int64_t>(i) * kMlp, kMlp,
                  expected.begin() + rows[i] * kMlp);
  }
  REQUIRE(differences(got, expected) == 0);
}

void check_outer_product(const std::string& dtype, int64_t tokens, int threads) {
  const Routed routed(tokens);
  const Numbers got =
      result_of({fmt::format("{}[\"token={} embed={}\"]", dtype, tokens, kEmbed),
                 fmt::format("{}[\"token={} top_k=2 mlp={}\"]", dtype, tokens, kMlp),
                 fmt::format("i32[\"token={} top_k=2\"]", tokens)},
                {routed.x, routed.dy, routed.ids}, threads, [](const std::vector<Tensor>& in) {
                  return grouped_outer_product(in[0], in[1], in[2], {"experts", kExperts, {}});
                });
  Numbers expected(got.size(), 0.0);
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const std::vector<int64_t> rows = routed.rows_of(expert);
    if (rows.empty()) continue;
    const Numbers sums =
        result_of({fmt::format("{}[\"row={} embed={}\"]", dtype, rows.size(), kEmbed),
                   fmt::format("{}[\"row={} mlp={}\"]", dtype, rows.size(), kMlp)},
                  {gathered(routed.x, kEmbed, rows, 2), gathered(routed.dy, kMlp, rows, 1)}, 1,
                  [](const std::vector<Tensor>& in) { return einsum(in[0], in[1], over("row")); });
    std::copy(sums.begin(), sums.end(), expected.begin() + expert * kEmbed * kMlp);
  }
  REQUIRE(differences(got, expected) == 0);
}

TEST_CASE("a routed row has the bits of its product with one expert") {
  const std::string dtype = GENERATE("f32", "bf16");
  const bool transposed = GENERATE(false, true);
  const int threads = GENERATE(1, 2, 5);
  CAPTURE(dtype, transposed, threads);
  for (const int64_t tokens : {700, 9, 1}) check_product(dtype, tokens, transposed, threads);
}

TEST_CASE("an expert's sum of outer products has the bits of a product over its rows") {
  const std::string dtype = GENERATE("f32", "bf16");
  const int threads = GENERATE(1, 2, 5);
  CAPTURE(dtype, threads);
  for (const int64_t tokens : {1100, 9}) check_outer_product(dtype, tokens, threads);
}

}  // namespace
}  // namespace tessera
