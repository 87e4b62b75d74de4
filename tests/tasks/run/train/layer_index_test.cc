// SPDX-License-Identifier: Apache-2.0
// The index of a layer in its stack: the same in unrolled and repeated stacks, with recomputation
// and on the stages of a pipeline.
#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/models/transformer.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/spmd_trial.h"

namespace tessera {

// x·w / (1 + index).
class ScaledByIndex final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = ScaledByIndex;
    static constexpr std::string_view kName = "ScaledByIndex";
    Required<int64_t> model_dims;
    FIELDS(model_dims)
  };
  explicit ScaledByIndex(const HParams& p) {
    w_ = weight("w", {{"embed", p.model_dims.get()}}, ones());
  }

 private:
  Tensor fprop(Tensor x) const override {
    x = place(x);
    const Tensor number = cast(layer_index(), x.dtype()) + 1.0;
    return place(x * param_like(w_, x) / number, "residual");
  }
  Weight w_;
};
const TemplateRegistrar<UnaryLayer, ScaledByIndex> kScaledByIndex;

// Computes 10·x + index. With in_a_loop it is an Error.
class AppendsIndex final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = AppendsIndex;
    static constexpr std::string_view kName = "AppendsIndex";
    bool in_a_loop = false;
    bool before_a_loop = false;
    FIELDS(in_a_loop, before_a_loop)
  };
  explicit AppendsIndex(const HParams& p) : p_(p) {}

 private:
  Tensor fprop(Tensor x, const SequenceInfo&) const override {
    if (!p_.in_a_loop) {
      const Tensor index = cast(layer_index(), x.dtype());
      if (!p_.before_a_loop) return x * 10.0 + index;
      return twice(x, [&](const Tensor& y) { return y * 10.0 + index; });
    }
    return twice(x, [&](const Tensor& y) { return y + cast(layer_index(), x.dtype()); });
  }
  template <typename Body>
  static Tensor twice(const Tensor& x, const Body& body) {
    return repeat("chunk", 2, {x}, {},
                  [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
                    return {{body(carries[0])}, {}};
                  })
        .carries[0];
  }
  HParams p_;
};
const TemplateRegistrar<SequenceLayer, AppendsIndex> kAppendsIndex;

namespace {

double result_of(const Template<SequenceLayer>& layer_tpl) {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=1 seq=1 embed=1\"]", {1.0});
  return trial.run(layer_tpl, {}, [&](const SequenceLayer& layer) { return layer(x, {}); })
      .values.at(0);
}

TEST_CASE("a layer reads its index in an unrolled and in a repeated stack") {
  const AppendsIndex::HParams digits;
  REQUIRE(result_of(StackedTransformer::HParams{.num_layers = 4, .block_tpl = digits}) == 10123);
  REQUIRE(result_of(Repeated::HParams{.num_layers = 4, .block_tpl = digits}) == 10123);
  const AppendsIndex::HParams outside{.before_a_loop = true};
  REQUIRE(result_of(Repeated::HParams{.num_layers = 2, .block_tpl = outside}) == 10011);
  // In nested stacks the index of the inner one counts.
  const StackedTransformer::HParams inner{.num_layers = 2, .block_tpl = digits};
  REQUIRE(result_of(Repeated::HParams{.num_layers = 2, .block_tpl = inner}) == 10101);
}

TEST_CASE("a layer without an index is told so") {
  using Catch::Contains;
  REQUIRE_THROWS_WITH(result_of(AppendsIndex::HParams{}), Contains("is in no stack of layers"));
  const AppendsIndex::HParams inside{.in_a_loop = true};
  REQUIRE_THROWS_WITH(result_of(Repeated::HParams{.num_layers = 2, .block_tpl = inside}),
                      Contains("call it before that loop"));
}

TEST_CASE("layers scaled by their index have one device's numbers, unrolled, repeated, in stages") {
  SpmdCase trial{.model = TrialModel::kLlama, .layers = 4, .steps = 3};
  trial.ffn = ScaledByIndex::HParams{};
  const SpmdRun unrolled = run_spmd(trial);
  trial.repeated = true;
  trial.remat = "save_nothing";
  REQUIRE(run_spmd(trial).losses == unrolled.losses);
  const RulesConfig rules = strategy_rules(Strategy::kPipeline);
  trial.own_rules = TrialRules{"stages", "layers -> stage", rules.activations};
  trial.stages = 2;
  trial.microbatches = 4;
  for (const std::vector<int64_t>& layers : {std::vector<int64_t>{}, {3, 1}}) {
    trial.layers_per_piece = layers;
    require_same_numbers(trial);
  }
}

}  // namespace
}  // namespace tessera
