// SPDX-License-Identifier: Apache-2.0
// Random models, meshes, rules and options against one device; also mixtures of experts, and layers
// in stages.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/chance.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

// Optional parts of a case.
struct Parts {
  bool experts = false, stages = false;
};

class CaseChance : public Chance {
 public:
  using Chance::Chance;

  // 2^doublings devices on three axes, some of which cross slices.
  void draw_mesh(SpmdCase& trial, int64_t doublings) {
    trial.ici = {1, 1, 1};
    trial.dcn = {1, 1, 1};
    for (; doublings > 0; --doublings)
      (below(4) == 0 ? trial.dcn : trial.ici)[static_cast<size_t>(below(3))] *= 2;
  }

  Template<BaseRouter> draw_router() {
    if (below(3) == 0)
      return ExpertChoiceRouter::HParams{.capacity_factor = one_of<double>({0.5, 1.0, 2.0}),
                                         .z_loss_weight = 0.01};
    TopKRouter::HParams router{
        .top_k = 1 + below(3),
        .scores = coin() ? RouterScores::kSoftmax : RouterScores::kSigmoid,
        .normalize_weights = coin(),
        .load_balance_weight = 0.1,
        .load_balance_scope = coin() ? BalanceScope::kBatch : BalanceScope::kExample,
        .z_loss_weight = 0.01,
        .bias_rate = coin() ? 0.01 : 0.0};
    if (coin()) router.capacity_factor = one_of<double>({0.5, 1.0, 2.0});  // Else dropless.
    return router;
  }

  // Stages, a schedule, microbatches that it can have, and layers in equal pieces or not.
  void draw_pipeline(SpmdCase& trial) {
    trial.repeated = true;
    const int64_t stages = trial.stages = one_of<int64_t>({2, 2, 4});
    trial.microbatches = stages * (1 + below(2));
    int64_t pieces = stages;
    switch (const int64_t chunks = 2 + below(2); below(5)) {
      case 0:
        trial.schedule = GPipe::HParams{};
        break;
      case 1:
        trial.schedule = OneForwardOneBackward::HParams{};
        break;
      case 2:
        trial.schedule = ZeroBubbleH1::HParams{};
        break;
      case 3:
        trial.schedule = InterleavedOneForwardOneBackward::HParams{.chunks = chunks};
        pieces *= chunks;
        break;
      default:
        trial.schedule = CircularPipeline::HParams{.chunks = chunks};
        pieces *= chunks;
    }
    const bool any_number =
        trial.schedule.name() != class_name<InterleavedOneForwardOneBackward::HParams>() &&
        pieces == stages;
    if (any_number && coin()) trial.microbatches = one_of<int64_t>({1, 2, 4, 8});
    trial.layers = pieces * (pieces <= 4 ? 1 + below(2) : 1);
    if (below(3) > 0) return;
    trial.layers = 0;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      trial.layers_per_piece.push_back(1 + below(2));
      trial.layers += trial.layers_per_piece.back();
    }
  }

  // Mesh axes for a logical axis: none, one, or several in any order.
  std::string some_axes(std::vector<std::string> from) {
    shuffle(from);
    from.resize(static_cast<size_t>(below(static_cast<int64_t>(from.size()) + 1)));
    std::string text;
    for (const std::string& each : from) text += (text.empty() ? "" : ", ") + each;
    return "(" + text + ")";
  }

  // Weights use the axes of activations or others; the batch uses those that remain.
  std::pair<std::string, std::string> draw_rules(const Parts& parts) {
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
    if (parts.experts) {  // On other axes than the width of an expert.
      std::vector<std::string> from = {"replica", "data", "mdl"};
      if (activations.find("mlp") != std::string::npos) std::erase(from, inner);
      activations = "experts -> " + some_axes(from) + ", " + activations;
    }
    activations += "batch -> " + some_axes(free);
    std::vector<std::string> axes = {"embed", "mlp", "heads", "vocab", "kv_heads", "positions"};
    if (parts.experts) axes.push_back("experts");
    shuffle(axes);
    for (const std::string& axis : axes)
      if (coin())
        weights += fmt::format("{}{} -> {}", weights.empty() ? "" : ", ", axis,
                               some_axes({"replica", "data", "mdl"}));
    if (parts.stages) weights = "layers -> stage" + (weights.empty() ? "" : ", " + weights);
    return {weights, activations};
  }
};

SpmdCase drawn_case(uint32_t seed, const Parts& parts) {
  using enum TrialModel;
  CaseChance chance(seed);
  SpmdCase trial{.model = chance.one_of<TrialModel>({kGpt2, kLlama, kPax}),
                 .repeated = chance.coin(),
                 .packed = chance.coin(),
                 .dropout = chance.coin(),
                 .remat = chance.one_of<std::string>(
                     {"save_everything", "save_nothing", "save_dot_only", "out_proj,ffn1"}),
                 .microbatches = chance.below(3) == 0 ? 2 : 1,
                 .steps = 3};
  if (parts.stages) chance.draw_pipeline(trial);
  chance.draw_mesh(
      trial, trial.stages == 1 ? 1 + chance.below(3) : chance.below(trial.stages == 2 ? 3 : 2));
  if (parts.experts) trial.router = chance.draw_router();
  // Documents of a row that begin alike have tokens of equal scores; which of them an expert
  // chooses is a matter of rounding.
  if (trial.router.has() && trial.router.name() == class_name<ExpertChoiceRouter::HParams>())
    trial.packed = false;
  const auto [weights, activations] = chance.draw_rules(parts);
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

// `parts_of` are the parts of the case of a seed.
void run_campaign(uint32_t first, uint32_t count, int least, Parts (*parts_of)(uint32_t seed)) {
  int ran = 0;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    INFO("seed " << seed);
    const SpmdCase trial = drawn_case(seed, parts_of(seed));
    if (!can_be_traced(trial)) continue;
    require_same_numbers(trial);
    ++ran;
  }
  REQUIRE(ran >= least);
}

Parts no_parts(uint32_t) { return {}; }

// Experts, stages, or both.
Parts some_parts(uint32_t seed) { return {.experts = seed % 3 != 1, .stages = seed % 3 != 0}; }

TEST_CASE("a few random meshes, rules and options give one device's numbers") {
  run_campaign(1, 12, 6, no_parts);
}

TEST_CASE("a few random mixtures of experts and pipelines give one device's numbers") {
  run_campaign(1, 6, 3, some_parts);
}

TEST_CASE("three hundred random meshes, rules and options give one device's numbers", "[full]") {
  run_campaign(1000, 300, 150, no_parts);
}

TEST_CASE("three hundred random mixtures of experts and pipelines give one device's numbers",
          "[full]") {
  run_campaign(1000, 300, 150, some_parts);
}

}  // namespace
}  // namespace tessera
