// SPDX-License-Identifier: Apache-2.0
// Layers of a model in stacks and out of them: which stacks a pattern of layers becomes, where the
// weights of each layer then are, and how two models differ.
#include "tasks/families/layered_lm.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "layers/experts/moe_feed_forward.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Strings = std::vector<std::string>;

// A layer for each letter; layers of one letter are equal.
LayeredLm model_of(const std::string& letters) {
  LayeredLm model;
  model.lm = {.vocab_size = 8, .model_dims = 4, .num_layers = 1, .num_heads = 2, .hidden_dims = 8};
  for (const char letter : letters)
    model.layers.push_back(
        {.attention_tpl = DotProductAttention::HParams{.window = 1 + letter - 'a'}});
  return model;
}

Template<TransformerLm> stacked_tpl(const std::string& letters, StackStyle style) {
  return stacked(model_of(letters), style);
}

// "Repeated 3 (a b)": the stacks, with the letters of their blocks.
std::string text_of(const Template<SequenceLayer>& layer_tpl) {
  if (layer_tpl.holds<TransformerBlock::HParams>()) {
    const auto& attention = layer_tpl.as<TransformerBlock::HParams>().attention_tpl;
    return {static_cast<char>('a' - 1 + attention.as<DotProductAttention::HParams>().window.get())};
  }
  if (layer_tpl.holds<LayerSequence::HParams>()) {
    Strings parts;
    for (const auto& part : layer_tpl.as<LayerSequence::HParams>().layers_tpl)
      parts.push_back(text_of(part));
    return fmt::format("({})", fmt::join(parts, " "));
  }
  if (layer_tpl.holds<Repeated::HParams>()) {
    const auto& stack = layer_tpl.as<Repeated::HParams>();
    return fmt::format("{}*{}", stack.num_layers.get(), text_of(stack.block_tpl));
  }
  const auto& stack = layer_tpl.as<StackedTransformer::HParams>();
  return fmt::format("{}x{}", stack.num_layers.get(), text_of(stack.block_tpl));
}

std::string stacks_of(const std::string& letters, StackStyle style = StackStyle::kRepeated) {
  return text_of(stacked_tpl(letters, style).as<TransformerLm::HParams>().stacked_transformer_tpl);
}

TEST_CASE("patterns of layers become stacks that trace few blocks") {
  REQUIRE(stacks_of("aaaa") == "4*a");
  REQUIRE(stacks_of("a") == "1xa");
  REQUIRE(stacks_of("ab") == "(1xa 1xb)");
  REQUIRE(stacks_of("ababab") == "3*(a b)");
  REQUIRE(stacks_of("abbbb") == "(1xa 4*b)");
  REQUIRE(stacks_of("aabaabaa") == "(2*(a a b) 2xa)");
  REQUIRE(stacks_of("cabab") == "(1xc 2*(a b))");
  REQUIRE(stacks_of("abcd") == "(1xa 1xb 1xc 1xd)");
  REQUIRE(stacks_of("aaaa", StackStyle::kUnrolled) == "4xa");
  REQUIRE(stacks_of("aab", StackStyle::kUnrolled) == "(2xa 1xb)");
}

TEST_CASE("the layers of stacks are those that were stacked, with the places of their weights") {
  for (const std::string letters : {"aaaa", "ababab", "abbbb", "aabaabaa", "cabab", "abcd"})
    for (const StackStyle style : {StackStyle::kRepeated, StackStyle::kUnrolled}) {
      const LayeredLm back = layers_of(stacked_tpl(letters, style));
      std::string found;
      for (const TransformerBlock::HParams& layer : back.layers) found += text_of(layer);
      REQUIRE(found == letters);
      REQUIRE(back.places.size() == letters.size());
    }
  const LayeredLm pairs = layers_of(stacked_tpl("ababab", StackStyle::kRepeated));
  REQUIRE(pairs.places[3].path == "transformer.x_layers[].part1.");
  REQUIRE(pairs.places[3].index == 1);
  const LayeredLm prefix = layers_of(stacked_tpl("abbbb", StackStyle::kRepeated));
  REQUIRE(prefix.places[0].path == "transformer.part0.x_layers[0].");
  REQUIRE(prefix.places[0].index == -1);
  REQUIRE(prefix.places[4].path == "transformer.part1.x_layers[].");
  REQUIRE(prefix.places[4].index == 3);
}

TEST_CASE("a stack of stacks, or of other layers, has no list of layers") {
  TransformerLm::HParams lm = model_of("a").lm;
  lm.stacked_transformer_tpl =
      Repeated::HParams{.num_layers = 2, .block_tpl = Repeated::HParams{.num_layers = 2}};
  REQUIRE_THAT(error_of([&] { layers_of(Template<TransformerLm>(lm)); }),
               Contains("transformer.x_layers[] is Repeated, expected TransformerBlock"));
  lm.stacked_transformer_tpl = Template<SequenceLayer>();
  REQUIRE_THAT(error_of([&] { layers_of(Template<TransformerLm>(lm)); }),
               Contains("transformer is unset"));
}

Strings differing(const LayeredLm& a, const LayeredLm& b, Missing missing = Missing::kIsDifferent) {
  Strings lines;
  for (const SettingDifference& each : differences(a, b, missing))
    lines.push_back(
        fmt::format("{}: {}, {}", each.name(std::ssize(a.layers)), each.first, each.second));
  return lines;
}

TEST_CASE("differences name the setting and the layers, and each only once") {
  const LayeredLm a = layers_of(stacked_tpl("abab", StackStyle::kRepeated));
  REQUIRE(differing(a, a).empty());
  REQUIRE(differing(a, layers_of(stacked_tpl("abab", StackStyle::kUnrolled))).empty());
  REQUIRE(differing(a, layers_of(stacked_tpl("aaab", StackStyle::kUnrolled))) ==
          Strings{"attention_tpl.window of layer 1: 2, 1"});
  REQUIRE(differing(a, layers_of(stacked_tpl("cbcb", StackStyle::kUnrolled))) ==
          Strings{"attention_tpl.window of layers 0, 2: 1, 3"});
  REQUIRE(differing(a, layers_of(stacked_tpl("ab", StackStyle::kUnrolled))) ==
          Strings{"num_layers: 4, 2"});
  LayeredLm b = a;
  b.lm.vocab_size = 9;
  for (TransformerBlock::HParams& layer : b.layers) {
    layer.residual_dropout_rate = 0.5;  // Used only in training.
    layer.norm_tpl.as<LayerNorm::HParams>().epsilon = 1e-3;
    layer.ffn_tpl = MoeFeedForward::HParams{};
  }
  REQUIRE(differing(a, b) == Strings{"vocab_size: 8, 9", "ffn_tpl: FeedForward, MoeFeedForward",
                                     "norm_tpl.epsilon: 1e-06, 0.001"});
}

TEST_CASE("biases and scales that only the second model has may be missing") {
  const LayeredLm a = layers_of(stacked_tpl("a", StackStyle::kRepeated));
  LayeredLm b = a;
  b.layers[0].ffn_tpl.as<FeedForward::HParams>().use_bias = true;
  REQUIRE(differing(a, b) == Strings{"ffn_tpl.use_bias: false, true"});
  REQUIRE(differing(a, b, Missing::kIsAllowed).empty());
  REQUIRE(differing(b, a, Missing::kIsAllowed) == Strings{"ffn_tpl.use_bias: true, false"});
}

}  // namespace
}  // namespace tessera
