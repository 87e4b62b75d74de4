// SPDX-License-Identifier: Apache-2.0
// Random models, meshes, rules and options against one device.
#include <algorithm>
#include <random>
#include <set>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t count) { return static_cast<int64_t>(random_() % count); }
  bool coin() { return below(2) == 0; }
  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }

  // Up to eight devices on three axes, some of which cross slices.
  void draw_mesh(SpmdCase& trial) {
    trial.ici = {1, 1, 1};
    trial.dcn = {1, 1, 1};
    for (int64_t doublings = 1 + below(3); doublings > 0; --doublings)
      (below(4) == 0 ? trial.dcn : trial.ici)[static_cast<size_t>(below(3))] *= 2;
  }

  // Mesh axes for a logical axis: none, one, or several in any order.
  std::string some_axes(std::vector<std::string> from) {
    std::shuffle(from.begin(), from.end(), random_);
    from.resize(static_cast<size_t>(below(static_cast<int64_t>(from.size()) + 1)));
    std::string text;
    for (const std::string& each : from) text += (text.empty() ? "" : ", ") + each;
    return "(" + text + ")";
  }

  // Weights use the axes of activations or others; the batch uses those that remain.
  std::pair<std::string, std::string> draw_rules() {
    std::vector<std::string> free = {"replica", "data", "mdl"};
    std::string activations, weights;
    const std::string inner = one_of(free);
    for (const std::string axis : {"heads", "mlp", "vocab"}) {
      if (coin()) continue;
      activations += fmt::format("{} -> {}, ", axis, inner);
      if (axis == "heads") activations += fmt::format("kv_heads -> {}, ", inner);
    }
    if (!activations.empty()) std::erase(free, inner);
    if (!activations.empty() && coin())
      activations = fmt::format("residual: seq -> {}, {}", inner, activations);
    if (!free.empty() && below(6) == 0) {
      activations = fmt::format("seq -> {}, ", free.back()) + activations;
      free.pop_back();
    } else if (!free.empty() && below(3) == 0) {
      activations = fmt::format(
                        "seq -> {0}, attention: seq -> (), attention: heads -> {1}, attention: "
                        "kv_heads -> {1}, ",
                        free.back(),
                        activations.find("heads") == std::string::npos
                            ? free.back()
                            : fmt::format("({}, {})", inner, free.back())) +
                    activations;
      free.pop_back();
    }
    activations += "batch -> " + some_axes(free);
    std::vector<std::string> axes = {"embed", "mlp", "heads", "vocab", "kv_heads", "positions"};
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const std::string& axis : axes)
      if (coin())
        weights += fmt::format("{}{} -> {}", weights.empty() ? "" : ", ", axis,
                               some_axes({"replica", "data", "mdl"}));
    return {weights, activations};
  }

 private:
  std::mt19937 random_;
};

SpmdCase drawn_case(uint32_t seed) {
  using enum TrialModel;
  Chance chance(seed);
  SpmdCase trial{.model = chance.one_of<TrialModel>({kGpt2, kLlama, kPax}),
                 .repeated = chance.coin(),
                 .packed = chance.coin(),
                 .dropout = chance.coin(),
                 .remat = chance.one_of<std::string>(
                     {"save_everything", "save_nothing", "save_dot_only", "out_proj,ffn1"}),
                 .microbatches = chance.below(3) == 0 ? 2 : 1,
                 .steps = 3};
  chance.draw_mesh(trial);
  const auto [weights, activations] = chance.draw_rules();
  trial.own_rules = TrialRules{"rules of its own", weights, activations};
  if (chance.coin()) trial.chunk_tokens = 1 + chance.below(60);
  return trial;
}

// A draw may split an axis into more parts than it has elements; tracing refuses that.
bool can_be_traced(const SpmdCase& trial) {
  try {
    traced_step(trial);
    return true;
  } catch (const Error& error) {
    INFO(trial.text());
    REQUIRE_THAT(error.what(), Catch::Contains("cannot be split by"));
    return false;
  }
}

void run_campaign(uint32_t first, uint32_t count, int least) {
  int ran = 0;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const SpmdCase trial = drawn_case(seed);
    if (!can_be_traced(trial)) continue;
    INFO("seed " << seed);
    require_same_numbers(trial);
    ++ran;
  }
  REQUIRE(ran >= least);
}

TEST_CASE("a few random meshes, rules and options give one device's numbers") {
  run_campaign(1, 12, 6);
}

TEST_CASE("three hundred random meshes, rules and options give one device's numbers", "[full]") {
  run_campaign(1000, 300, 150);
}

}  // namespace
}  // namespace tessera
