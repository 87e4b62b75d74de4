// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_config.h"

#include "core/base/error.h"
#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/fuzz.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;

std::string golden(const std::string& name) {
  return read_file(
      fmt::format("{}/tests/golden/hugging_face/{}/config.json", TESSERA_SOURCE_DIR, name));
}

constexpr const char* kNames[] = {"gpt2",         "gpt2_untied",     "llama",   "llama_biases",
                                  "llama_scaled", "llama_stretched", "mixtral", "mixtral_tied"};

TEST_CASE("config.json as written by transformers is read") {
  const HfConfig gpt2 = parse_hf_config(golden("gpt2"), "config.json");
  REQUIRE(gpt2.family == HfFamily::kGpt2);
  REQUIRE(gpt2.hidden_dims == 64);  // n_inner is null in the file.
  REQUIRE(gpt2.activation == "gelu_new");
  REQUIRE(gpt2.tied);
  REQUIRE(gpt2.attention_dropout == 0.1);
  const HfConfig llama = parse_hf_config(golden("llama_scaled"), "config.json");
  REQUIRE(llama.family == HfFamily::kLlama);
  REQUIRE(llama.num_kv_heads == 1);
  REQUIRE(llama.head_dim == 8);
  REQUIRE(llama.tied);
  REQUIRE(llama.stretch.factor == 8.0);
  REQUIRE(llama.stretch.length == 16.0);
  const HfConfig stretched = parse_hf_config(golden("llama_stretched"), "config.json");
  REQUIRE(stretched.rope_factor == 4.0);
  const HfConfig mixtral = parse_hf_config(golden("mixtral_tied"), "config.json");
  REQUIRE(mixtral.family == HfFamily::kMixtral);
  REQUIRE(mixtral.num_experts == 5);
  REQUIRE(mixtral.experts_per_token == 3);
  REQUIRE(mixtral.hidden_dims == 8);
  REQUIRE(mixtral.head_dim == 8);
  REQUIRE(mixtral.rope_theta == 500.0);
  REQUIRE(mixtral.rope_factor == 4.0);
  REQUIRE(mixtral.router_loss_coef == 0.02);
  REQUIRE(mixtral.router_jitter == 0.1);
  // Both names of the tanh approximation of GELU map to one activation.
  REQUIRE(parse_hf_config(golden("llama_biases"), "config.json").activation == "gelu_new");
}

TEST_CASE("config.json as written by earlier transformers versions is read too") {
  const std::string sizes =
      R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 4,
          "num_hidden_layers": 1, "num_attention_heads": 2, )";
  const HfConfig config = parse_hf_config(
      sizes + R"("rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 2}})", "c");
  REQUIRE(config.rope_theta == 500.0);
  REQUIRE(config.rope_factor == 2.0);
  REQUIRE(config.head_dim == 4);
  REQUIRE(config.num_kv_heads == 2);
  REQUIRE_FALSE(config.tied);
  REQUIRE(config.activation == "silu");
  REQUIRE(config.norm_epsilon == 1e-6);

  // The published file of Mixtral 8x7B: other defaults than Llama's, and no head_dim.
  const HfConfig mixtral = parse_hf_config(
      R"({"model_type": "mixtral", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 4,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
          "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": false,
          "sliding_window": null})",
      "c");
  REQUIRE(mixtral.rope_theta == 1e6);
  REQUIRE(mixtral.norm_epsilon == 1e-5);
  REQUIRE(mixtral.max_positions == 131072);
  REQUIRE(mixtral.head_dim == 4);
  REQUIRE(mixtral.router_loss_coef == 0.0);
}

TEST_CASE("a written config.json reads back the same") {
  for (const char* name : kNames) {
    INFO(name);
    const HfConfig config = parse_hf_config(golden(name), "config.json");
    const std::string text = hf_config_text(config, "float32", {.end = 3});
    const HfConfig back = parse_hf_config(text, "written");
    REQUIRE(hf_differences(config, back) == std::vector<std::string>{});
    REQUIRE(back.router_loss_coef == config.router_loss_coef);
    REQUIRE(back.router_jitter == config.router_jitter);
    REQUIRE(hf_config_text(back, "float32", {.end = 3}) == text);
    REQUIRE_THAT(text, Contains("\"eos_token_id\": 3") && Contains("\"bos_token_id\": null"));
  }
}

TEST_CASE("all differences of two configurations are reported at once") {
  const HfConfig file = parse_hf_config(golden("llama_scaled"), "config.json");
  HfConfig other = file;
  other.model_dims = 32;
  other.tied = false;
  other.norm_epsilon = 1e-5;
  other.stretch.low = 2.0;
  other.max_positions = 7;        // Not compared for Llama models.
  other.residual_dropout = 0.25;  // Has no effect in them.
  REQUIRE(hf_differences(file, other) ==
          std::vector<std::string>{
              "hidden_size: 16 in config.json, 32 in the experiment",
              "rms_norm_eps: 1e-06 in config.json, 1e-05 in the experiment",
              "tie_word_embeddings: true in config.json, false in the experiment",
              "rope_scaling.low_freq_factor: 1 in config.json, 2 in the experiment"});
  const HfConfig gpt2 = parse_hf_config(golden("gpt2"), "config.json");
  REQUIRE(hf_differences(gpt2, file)[0] ==
          "model_type: gpt2 in config.json, llama in the experiment");
  const HfConfig mixtral = parse_hf_config(golden("mixtral"), "config.json");
  HfConfig wider = mixtral;
  wider.num_experts = 8;
  wider.experts_per_token = 1;
  wider.router_loss_coef = 1.0;  // Used only in training.
  REQUIRE(hf_differences(mixtral, wider) ==
          std::vector<std::string>{"num_local_experts: 4 in config.json, 8 in the experiment",
                                   "num_experts_per_tok: 2 in config.json, 1 in the experiment"});
}

// The error for a valid configuration with one member replaced.
std::string message_with(const std::string& name, const std::string& value,
                         const std::string& golden_name = "llama") {
  std::string text = golden(golden_name);
  const size_t at = text.find("\"" + name + "\":");
  if (at != std::string::npos) {
    const size_t end = text.find_first_of(",\n", at);
    text.replace(at, end - at, fmt::format("\"{}\": {}", name, value));
  } else {
    text.insert(text.find('{') + 1, fmt::format("\"{}\": {},", name, value));
  }
  return error_of([&] { parse_hf_config(text, "config.json"); });
}

TEST_CASE("a model that is not supported is rejected with the reason") {
  REQUIRE_THAT(message_with("model_type", "\"lama\""),
               Contains("model_type is 'lama', expected one of gpt2, llama, mixtral; did you "
                        "mean 'llama'?"));
  REQUIRE_THAT(message_with("hidden_size", "\"16\""),
               Contains("config.json: hidden_size is a string, expected a whole number"));
  REQUIRE_THAT(message_with("hidden_size", "null"), Contains("lacks 'hidden_size'"));
  REQUIRE_THAT(message_with("vocab_size", "99999999999"), Contains("expected a number from 1 to"));
  REQUIRE_THAT(message_with("num_key_value_heads", "3"), Contains("=3 does not divide"));
  REQUIRE_THAT(message_with("head_dim", "5"), Contains("head_dim=5 is odd"));
  REQUIRE_THAT(message_with("rms_norm_eps", "0"), Contains("expected a number above 0"));
  REQUIRE_THAT(message_with("hidden_act", "\"sillu\""), Contains("did you mean 'silu'?"));
  REQUIRE_THAT(message_with("quantization_config", "{}"), Contains("quantised weights"));
  REQUIRE_THAT(message_with("rope_scaling", R"({"rope_type": "yarn", "factor": 2})"),
               Contains("has type 'yarn', expected default, linear or llama3"));
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
               Contains("config.json: num_experts_per_tok=5 exceeds num_local_experts=4"));
  REQUIRE_THAT(message("num_experts_per_tok", "0"), Contains("expected a number from 1 to"));
  REQUIRE_THAT(message("num_local_experts", "null"), Contains("lacks 'num_local_experts'"));
  REQUIRE_THAT(message("num_key_value_heads", "null"), Contains("lacks 'num_key_value_heads'"));
  REQUIRE_THAT(message("router_aux_loss_coef", "-0.5"),
               Contains("router_aux_loss_coef is -0.5, expected a number from 0"));
  REQUIRE_THAT(message("router_jitter_noise", "1.0"), Contains("expected a rate"));
  REQUIRE_THAT(message("sliding_window", "63"),
               Contains("sliding_window=63 is shorter than max_position_embeddings=64, but "
                        "attention in a window is not supported"));
  REQUIRE(message("sliding_window", "64") == "no error");
}

void read_and_write(std::string_view text) {
  const HfConfig config = parse_hf_config(text, "input");
  std::vector<std::string> differences;
  try {
    differences =
        hf_differences(config, parse_hf_config(hf_config_text(config, "float32"), "written"));
  } catch (const Error& error) {
    differences = {error.what()};
  }
  if (!differences.empty()) throw std::logic_error("not read as written: " + differences[0]);
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const char* name : kNames) texts.push_back(golden(name));
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
