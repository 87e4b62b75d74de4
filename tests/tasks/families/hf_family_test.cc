// SPDX-License-Identifier: Apache-2.0
#include "tasks/families/hf_family.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/experts/moe_feed_forward.h"
#include "tests/out_of_tree/olmoe.cc"  // NOLINT: the plugin's family, which has a golden.
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/hugging_face";

std::string golden(const std::string& name) { return read_file(kGoldens / name / "config.json"); }
HfConfig golden_config(const std::string& name) {
  return read_hf_config(golden(name), "config.json");
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  return names;
}

const DotProductAttention::HParams& attention_of(const HfConfig& config) {
  return config.model.layers[0].attention_tpl.as<DotProductAttention::HParams>();
}
const RotaryPositionEmbedding::HParams& rotary_of(const HfConfig& config) {
  return attention_of(config).rotary_tpl.as<RotaryPositionEmbedding::HParams>();
}
const TopKRouter::HParams& router_of(const HfConfig& config) {
  return config.model.layers[0]
      .ffn_tpl.as<MoeFeedForward::HParams>()
      .router_tpl.as<TopKRouter::HParams>();
}
bool is_tied(const HfConfig& config) { return !config.model.lm.separate_embedding_tpl.has(); }

TEST_CASE("config.json as written by transformers is read") {
  const HfConfig gpt2 = golden_config("gpt2");
  REQUIRE(gpt2.family->model_type == "gpt2");
  REQUIRE(gpt2.model.lm.hidden_dims.get() == 64);  // n_inner is null in the file.
  REQUIRE(is_tied(gpt2));
  REQUIRE(attention_of(gpt2).dropout_rate == 0.0);  // An experiment chooses it.
  const HfConfig llama = golden_config("llama_scaled");
  REQUIRE(llama.family->model_type == "llama");
  REQUIRE(attention_of(llama).num_kv_heads.get() == 1);
  REQUIRE(attention_of(llama).dims_per_head.get() == 8);
  REQUIRE(is_tied(llama));
  REQUIRE(rotary_of(llama).stretch->factor == 8.0);
  REQUIRE(rotary_of(llama).stretch->length == 16.0);
  REQUIRE(rotary_of(golden_config("llama_stretched")).min_timescale == 4.0);
  const HfConfig mixtral = golden_config("mixtral_tied");
  REQUIRE(mixtral.family->model_type == "mixtral");
  REQUIRE(router_of(mixtral).top_k == 3);
  REQUIRE(mixtral.model.lm.hidden_dims.get() == 8);
  REQUIRE(rotary_of(mixtral).max_timescale == 2000.0);  // 500, in positions divided by 4.
  // transformers adds coef·Σ f·P·experts with Σ f = experts per token, once for all layers.
  REQUIRE(router_of(mixtral).load_balance_weight == Approx(0.02 * 3 / 2));
  REQUIRE(router_of(mixtral).jitter == 0.1);
  for (const std::string& name : golden_names()) {
    INFO(name);
    REQUIRE(golden_config(name).unread == std::vector<std::string>{});
  }
}

TEST_CASE("config.json as written by earlier transformers versions is read too") {
  const std::string sizes =
      R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 4,
          "num_hidden_layers": 1, "num_attention_heads": 2, )";
  const HfConfig config = read_hf_config(
      sizes + R"("rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 2}})", "c");
  REQUIRE(rotary_of(config).max_timescale == 1000.0);
  REQUIRE(rotary_of(config).min_timescale == 2.0);
  REQUIRE(attention_of(config).dims_per_head.get() == 4);
  REQUIRE(attention_of(config).num_kv_heads.get() == 2);
  REQUIRE_FALSE(is_tied(config));
  const auto& ffn = config.model.layers[0].ffn_tpl.as<FeedForward::HParams>();
  REQUIRE(ffn.activation_tpl.holds<SiLU::HParams>());
  REQUIRE(config.model.layers[0].norm_tpl.as<RmsNorm::HParams>().epsilon == 1e-6);

  // The published file of Mixtral 8x7B: other defaults than Llama's, and no head_dim.
  const HfConfig mixtral = read_hf_config(
      R"({"model_type": "mixtral", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 4,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
          "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": false,
          "sliding_window": null})",
      "c");
  REQUIRE(rotary_of(mixtral).max_timescale == 1e6);
  REQUIRE(rotary_of(mixtral).max_positions.get() == 131072);
  REQUIRE(mixtral.model.layers[0].norm_tpl.as<RmsNorm::HParams>().epsilon == 1e-5);
  REQUIRE(attention_of(mixtral).dims_per_head.get() == 4);
  REQUIRE(router_of(mixtral).load_balance_weight == Approx(0.001 * 2));
}

// The text of a config.json, from its members.
std::string text_of(const WrittenConfig& written, const HfFamily& family) {
  return fmt::format("{{\"model_type\": \"{}\",\n{}}}", family.model_type,
                     fmt::join(written.lines, ",\n"));
}

LayeredLm settled(const HfConfig& config) {
  return layers_of(stacked(config.model, StackStyle::kUnrolled));
}

TEST_CASE("a written config.json reads back the same") {
  for (const std::string& name : golden_names()) {
    INFO(name);
    const HfConfig config = golden_config(name);
    const WrittenConfig written = write_hf_config(*config.family, settled(config));
    REQUIRE(written.reasons == std::vector<std::string>{});
    const std::string text = text_of(written, *config.family);
    const HfConfig back = read_hf_config(text, "written");
    REQUIRE(differences(settled(config), settled(back), Missing::kIsDifferent).empty());
    REQUIRE(text_of(write_hf_config(*config.family, settled(back)), *config.family) == text);
    if (config.model.layers[0].ffn_tpl.holds<MoeFeedForward::HParams>())
      REQUIRE(router_of(back).load_balance_weight == router_of(config).load_balance_weight);
  }
}

TEST_CASE("a family is found by its model_type, and two of one name are an error") {
  REQUIRE_THAT(hf_family_names(), Contains("gpt2, ") && Contains("llama, mistral, mixtral"));
  REQUIRE(hf_family("llama", "").architecture == "LlamaForCausalLM");
  const auto members = [](ConfigMembers&, LayeredLm&) {};
  const FamilyRegistrar first({.model_type = "zz_twice", .members = members});
  const FamilyRegistrar second({.model_type = "zz_twice", .members = members});
  REQUIRE_THAT(error_of([] { hf_family("zz_twice", ""); }),
               Contains("two families are registered as 'zz_twice'"));
}

// A valid configuration with one member replaced, and its error.
std::string golden_with(const std::string& name, const std::string& value,
                        const std::string& golden_name = "llama") {
  std::string text = golden(golden_name);
  const size_t at = text.find("\"" + name + "\":");
  if (at != std::string::npos) {
    const bool is_list = text[at + name.size() + 4] == '[';
    const size_t end = is_list ? text.find(']', at) + 1 : text.find_first_of(",\n", at);
    text.replace(at, end - at, fmt::format("\"{}\": {}", name, value));
  } else {
    text.insert(text.find('{') + 1, fmt::format("\"{}\": {},", name, value));
  }
  return text;
}
std::string message_with(const std::string& name, const std::string& value,
                         const std::string& golden_name = "llama") {
  return error_of([&] { read_hf_config(golden_with(name, value, golden_name), "config.json"); });
}

TEST_CASE("a model that is not supported is rejected with the reason") {
  REQUIRE_THAT(message_with("model_type", "\"lama\""),
               Contains("config.json: model_type is 'lama', expected one of ") &&
                   Contains("gpt2, ") && Contains("did you mean 'llama'?"));
  REQUIRE_THAT(message_with("hidden_size", "\"16\""),
               Contains("config.json: hidden_size is a string, expected a whole number"));
  REQUIRE_THAT(message_with("hidden_size", "null"), Contains("lacks 'hidden_size'"));
  REQUIRE_THAT(message_with("hidden_size", "1048577"), Contains("from 1 to 1048576"));
  REQUIRE_THAT(message_with("intermediate_size", "16777217"), Contains("from 1 to 16777216"));
  REQUIRE_THAT(message_with("vocab_size", "99999999999"), Contains("expected a number from 1 to"));
  REQUIRE_THAT(message_with("num_hidden_layers", "5000"), Contains("expected at most 4096"));
  REQUIRE_THAT(message_with("num_key_value_heads", "3"), Contains("=3 does not divide"));
  REQUIRE_THAT(message_with("num_key_value_heads", "8"), Contains("=8 does not divide"));
  REQUIRE_THAT(message_with("head_dim", "5"),
               Contains("5 of head_dim=5 are rotated, an odd number"));
  REQUIRE_THAT(message_with("rms_norm_eps", "0"), Contains("expected a number above 0"));
  REQUIRE_THAT(message_with("hidden_act", "\"sillu\""), Contains("did you mean 'silu'?"));
  REQUIRE_THAT(message_with("rope_scaling", R"({"rope_type": "spiral", "factor": 2})"),
               Contains("has type 'spiral', expected default, "));
  REQUIRE_THAT(message_with("rope_scaling", R"({"full_attention": {"rope_theta": 1.0}})"),
               Contains("a rotation for each kind of layer is not supported"));
  REQUIRE_THAT(message_with("rope_scaling", R"({"type": "llama3", "low_freq_factor": 4})"),
               Contains("low_freq_factor 4 is not below high_freq_factor 4"));
  REQUIRE_THAT(message_with("n_head", "3", "gpt2"), Contains("n_head=3 does not divide n_embd=16"));
  REQUIRE_THAT(message_with("scale_attn_weights", "false", "gpt2"), Contains("divided by"));
  REQUIRE_THAT(message_with("add_cross_attention", "true", "gpt2"),
               Contains("expected a decoder only"));
  REQUIRE_THAT(message_with("attn_pdrop", "1.0", "gpt2"), Contains("expected a rate"));
}

TEST_CASE("a Mixtral with invalid experts or a window is rejected with the reason") {
  const auto message = [](const std::string& name, const std::string& value) {
    return message_with(name, value, "mixtral");
  };
  REQUIRE_THAT(message("num_experts_per_tok", "5"),
               Contains("config.json: num_experts_per_tok=5 exceeds the number of experts, 4"));
  REQUIRE_THAT(message("num_experts_per_tok", "0"), Contains("expected a number from 1 to"));
  REQUIRE_THAT(message("num_local_experts", "null"), Contains("lacks 'num_local_experts'"));
  REQUIRE_THAT(message("num_key_value_heads", "null"), Contains("lacks 'num_key_value_heads'"));
  REQUIRE_THAT(message("router_aux_loss_coef", "-0.5"),
               Contains("router_aux_loss_coef is -0.5, expected a number from 0"));
  REQUIRE_THAT(message("router_jitter_noise", "1.0"), Contains("expected a rate"));
  REQUIRE_THAT(message("sliding_window", "0"),
               Contains("sliding_window is 0, expected a number from 1, or null for none"));
  REQUIRE(message("sliding_window", "64") == "no error");
  REQUIRE_THAT(message_with("layer_types", "[\"full_attention\"]", "qwen2"),
               Contains("layer_types has 1 entries for 2 layers"));
  REQUIRE_THAT(message_with("no_rope_layers", "[1]", "smollm3"),
               Contains("no_rope_layers has 1 numbers for 4 layers"));
  REQUIRE_THAT(message_with("clip_qkv", "8.0", "olmoe"), Contains("clip_qkv: queries, keys and"));
}

TEST_CASE("a masked model with other parts is rejected with the reason") {
  REQUIRE_THAT(message_with("is_decoder", "true", "bert"),
               Contains("is_decoder is true: expected an encoder, in which tokens attend to all"));
  REQUIRE_THAT(message_with("add_cross_attention", "true", "roberta"), Contains("an encoder only"));
  REQUIRE_THAT(message_with("tie_word_embeddings", "false", "bert"),
               Contains("expected one table for tokens and their scores"));
  REQUIRE_THAT(message_with("position_embedding_type", "\"relative_key\"", "bert"),
               Contains("is 'relative_key': expected learned positions"));
  REQUIRE_THAT(message_with("num_attention_heads", "5", "bert"),
               Contains("num_attention_heads=5 does not divide hidden_size=12"));
  REQUIRE_THAT(message_with("pad_token_id", "23", "roberta"),
               Contains("no position follows pad_token_id=23 in max_position_embeddings=24"));
  REQUIRE_THAT(message_with("layer_types", "[\"full_attention\"]", "modernbert"),
               Contains("layer_types has 1 entries for 3 layers"));
  REQUIRE_THAT(message_with("rope_scaling", "{\"factor\": 2.0}", "modernbert"),
               Contains("rope_scaling: expected rope_parameters"));
}

// Gemma3ForConditionalGeneration, as published, and an unknown one; then a tower beside a text
// model.
TEST_CASE("a model with a tower for images is rejected with what to do") {
  for (const std::string text :
       {R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}, "vision_config":
            {"model_type": "siglip_vision_model"}})",
        R"({"model_type": "seer", "vision_config": {}})"})
    REQUIRE_THAT(error_of([&] { read_hf_config(text, "config.json"); }),
                 Contains("config.json: vision_config: models with a tower for images") &&
                     Contains("Gemma3ForCausalLM") && Contains("m.config.text_config"));
  for (const std::string name : {"vision_config", "audio_config", "text_config"}) {
    REQUIRE_THAT(message_with(name, "{\"hidden_size\": 8}", "gemma3"),
                 Contains(name + ": models with a tower for images or sound are not supported"));
    REQUIRE(message_with(name, "null", "gemma3") == "no error");
  }
}

// local_attention / 2 tokens on each side; 0 would be read as 1.
TEST_CASE("a ModernBERT's window is written as the size that has this window") {
  REQUIRE_THAT(message_with("local_attention", "0", "modernbert"),
               Contains("local_attention is 0, expected a number from 1 to"));
  struct Window {
    int64_t read, window, written;
  };
  for (const auto& [read, window, written] :
       {Window{1, 1, 1}, {2, 2, 2}, {3, 2, 2}, {4, 3, 4}, {129, 65, 128}}) {
    const std::string text = golden_with("local_attention", std::to_string(read), "modernbert");
    const HfConfig config = read_hf_config(text, "config.json");
    const TransformerBlock::HParams& layer = config.model.layers[1];
    REQUIRE(layer.attention_tpl.as<DotProductAttention::HParams>().window.get_or(0) == window);
    const WrittenConfig result = write_hf_config(*config.family, settled(config));
    REQUIRE(result.reasons == std::vector<std::string>{});
    REQUIRE_THAT(text_of(result, *config.family),
                 Contains(fmt::format("\"local_attention\": {},", written)));
  }
}

// The members of its published file.
TEST_CASE("a ModernBERT of before version 5 of transformers is read") {
  const HfConfig config = read_hf_config(
      R"({"model_type": "modernbert", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 4,
          "num_hidden_layers": 4, "num_attention_heads": 2, "global_attn_every_n_layers": 3,
          "global_rope_theta": 160000.0, "local_rope_theta": 500.0, "local_attention": 128,
          "layer_norm_eps": 1e-05, "position_embedding_type": "absolute"})",
      "c");
  const std::vector<int64_t> windows = {0, 65, 65, 0};
  for (size_t i = 0; i < 4; ++i) {
    const TransformerBlock::HParams& layer = config.model.layers[i];
    const auto& attention = layer.attention_tpl.as<DotProductAttention::HParams>();
    REQUIRE(attention.window.get_or(0) == windows[i]);
    REQUIRE(attention.rotary_tpl.as<RotaryPositionEmbedding::HParams>().max_timescale ==
            (windows[i] > 0 ? 500.0 : 160000.0));
    REQUIRE(layer.use_attention_norm == (i > 0));
  }
  REQUIRE(config.unread == std::vector<std::string>{});
}

TEST_CASE("members that are not known are listed, except those that cannot matter") {
  std::string text = golden("llama");
  text.insert(text.find('{') + 1, R"("use_clever_trick": true, "pad_token_id": 0,)");
  REQUIRE(read_hf_config(text, "c").unread == std::vector<std::string>{"use_clever_trick"});
}

void read_and_write(std::string_view text) {
  const HfConfig config = read_hf_config(text, "input");
  // Larger ones are read in the same way, but take memory.
  if (config.model.layers.size() > 64) return;
  const WrittenConfig written = write_hf_config(*config.family, settled(config));
  if (!written.reasons.empty())
    throw std::logic_error("not read as written: " + written.reasons[0]);
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const std::string& name : golden_names()) texts.push_back(golden(name));
  return texts;
}

TEST_CASE("mutated config.json files are at worst rejected") {
  const FuzzReport report = fuzz("hf_config", seeds(), read_and_write, kFastFuzz);
  REQUIRE(report.refused > 0);
  REQUIRE(report.refused < report.inputs);
}

TEST_CASE("a million mutated config.json files are at worst rejected", "[full]") {
  fuzz("hf_config", seeds(), read_and_write, kFullFuzz);
}

}  // namespace
}  // namespace tessera
