// SPDX-License-Identifier: Apache-2.0
#include "tasks/sample_text.h"

#include <cmath>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("tokens are drawn as often as the softmax of their logits says") {
  const std::vector<float> logits = {9.0f, 1.0f, 0.0f, 2.0f};  // The first is reserved.
  for (const double temperature : {0.5, 1.0, 2.0}) {
    INFO("temperature " << temperature);
    std::vector<int> drawn(4, 0);
    constexpr int kDraws = 10000;
    for (int i = 0; i < kDraws; ++i) ++drawn[draw_token(logits, temperature, (i + 0.5) / kDraws)];
    double total = 0.0;
    for (size_t i = 1; i < 4; ++i) total += std::exp(logits[i] / temperature);
    REQUIRE(drawn[0] == 0);
    for (size_t i = 1; i < 4; ++i)
      REQUIRE(drawn[i] == Approx(kDraws * std::exp(logits[i] / temperature) / total).margin(1.5));
  }
}

TEST_CASE("temperature 0 takes the largest, and the ends of the range are drawn from") {
  const std::vector<float> logits = {9.0f, 1.0f, 0.0f, 2.0f};
  REQUIRE(draw_token(logits, 0.0, 0.3) == 3);
  REQUIRE(draw_token(logits, 1.0, 0.0) == 1);
  REQUIRE(draw_token(logits, 1.0, 0.9999999999) == 3);
}

}  // namespace
}  // namespace tessera
