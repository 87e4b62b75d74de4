// SPDX-License-Identifier: Apache-2.0
// The recipes of experiments/nvidia: numbers of weights against formulas and published numbers, the
// structure of mixtures of experts, and in what Meta's Llama 2 differs from Pax's.
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/hparams/text.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/synthetic_input.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/language_model.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/registry.h"
#include "tasks/planner/plan.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

std::string full_name(const std::string& name) { return "nvidia." + name; }

ExperimentConfig config_of(const std::string& name, const std::vector<std::string>& sets = {}) {
  return configure(find_experiment(full_name(name), {own_plugins("experiments")}), sets).config;
}

TransformerLm::HParams lm_of(const std::string& name) {
  const ExperimentConfig config = config_of(name);
  return config.task.as<SingleTask::HParams>()
      .model.as<LanguageModel::HParams>()
      .lm_tpl.as<TransformerLm::HParams>();
}

// Sizes of a block's attention: D wide, H heads of d dimensions, K of them with keys and values.
struct Heads {
  int64_t D, H, d, K;
  int64_t products() const { return 2 * D * H * d + 2 * D * K * d; }
  int64_t biases() const { return H * d + 2 * K * d + D; }
};

// A GPT of Pax: LayerNorm with scale and bias, biases of the feed-forward layer and of the softmax,
// a scale for each dimension of a head, one table, and P learned positions.
int64_t gpt(int64_t L, int64_t D, int64_t F, int64_t H, int64_t V, int64_t P = 2048) {
  const Heads heads{D, H, D / H, H};
  const int64_t block = heads.products() + heads.d + 2 * D * F + F + D + 4 * D;
  return L * block + 2 * D + V * D + V + P * D;
}

// GPT-3: biases of attention too, none of the softmax, no scales of heads, as many positions as
// tokens of a row.
int64_t gpt3(int64_t L, int64_t D, int64_t V) {
  const Heads heads{D, 1, D, 1};
  const int64_t block = heads.products() + heads.biases() + 8 * D * D + 5 * D + 4 * D;
  return L * block + 2 * D + V * D + 2048 * D;
}

// Pax's Llama: RMSNorm, three matrices and three biases in the feed-forward layer, one table.
int64_t pax_llama(int64_t L, int64_t D, int64_t F, int64_t H, int64_t K) {
  const Heads heads{D, H, 128, K};
  const int64_t block = heads.products() + heads.biases() + 3 * D * F + 2 * F + D + 2 * D;
  return L * block + D + 51200 * D + 51200;
}

// Meta's: no biases, two tables.
int64_t meta_llama(int64_t L, int64_t D, int64_t F, int64_t H, int64_t K, int64_t V) {
  return L * (Heads{D, H, 128, K}.products() + 3 * D * F + 2 * D) + D + 2 * V * D;
}

// The router and E experts of `matrices` matrices.
int64_t mixture(int64_t D, int64_t F, int64_t E, int64_t matrices) {
  return D * E + matrices * E * D * F;
}

int64_t moe_large() {
  const int64_t D = 4096;
  const int64_t block = Heads{D, 32, 128, 32}.products() + 128 + mixture(D, 4 * D, 16, 2) + 4 * D;
  return 12 * block + 2 * D + 51200 * D + 51200 + 2048 * D;
}

int64_t glam(int64_t L, int64_t H, int64_t V, int64_t D = 8192, int64_t d = 128) {
  const int64_t F = 4 * D;
  const int64_t two_blocks =
      2 * (Heads{D, H, d, H}.products() + 2 * D) + mixture(D, F, 64, 2) + 3 * D * F;
  return L / 2 * two_blocks + D + V * D;
}

int64_t grok(int64_t L) {
  const int64_t D = 6144;
  const Heads heads{D, 48, 128, 8};
  return L * (heads.products() + heads.biases() + mixture(D, 32768, 8, 3) + 2 * D) + D +
         131'072 * D;
}

struct Row {
  int64_t weights = 0;
  std::string published;  // In billions, with the published digits; "": not published.
};

const std::map<std::string, Row>& rows() {
  static const std::map<std::string, Row> table = {
      {"Nvidia1_3B", {gpt(24, 2048, 8192, 32, 51200), "1.3"}},
      {"Nvidia5B", {gpt(24, 4096, 16384, 32, 51200), "5"}},
      {"Nvidia8_3B", {gpt(40, 4096, 16384, 64, 51200), "8.3"}},
      {"Nvidia10B", {gpt(32, 5120, 20480, 40, 51200), "10"}},
      {"Nvidia40BProxy", {gpt(12, 8192, 32768, 64, 51200), ""}},
      {"Nvidia70BProxy", {gpt(20, 8192, 32768, 64, 51200), ""}},
      {"Nvidia116BProxy", {gpt(16, 12288, 49152, 96, 51200), ""}},
      {"Nvidia175BProxy", {gpt(24, 12288, 49152, 96, 51200), ""}},
      {"Nvidia175B", {gpt(96, 12288, 49152, 96, 51200), "175"}},
      {"Nvidia175BFsdp", {gpt(96, 12288, 49152, 96, 51200), "175"}},
      {"TestSmallConfig", {gpt(16, 4096, 16384, 32, 51200), ""}},
      {"CircularRepeat", {gpt(32, 4096, 16384, 32, 32000, 0), ""}},
      {"Llama33BProxy", {gpt(60, 6656, 17920, 52, 32000), "25"}},
      {"Llama2_7B", {pax_llama(32, 4096, 11008, 32, 32), ""}},
      {"Llama2_13B", {pax_llama(40, 5120, 13824, 40, 40), ""}},
      {"Llama2_70B", {pax_llama(80, 8192, 28672, 64, 8), ""}},
      {"MetaLlama2_7B", {meta_llama(32, 4096, 11008, 32, 32, 32000), "6.74"}},
      {"MetaLlama2_13B", {meta_llama(40, 5120, 13824, 40, 40, 32000), "13.02"}},
      {"MetaLlama2_70B", {meta_llama(80, 8192, 28672, 64, 8, 32000), "68.98"}},
      {"MetaLlama3_8B", {meta_llama(32, 4096, 14336, 32, 8, 128'256), "8.03"}},
      {"MetaLlama3_70B", {meta_llama(80, 8192, 28672, 64, 8, 128'256), "70.55"}},
      {"MoELarge", {moe_large(), "26.8"}},
      {"GLaM64B64EProxy", {glam(8, 64, 51200), "143"}},
      {"GLaM64B64EProxyEP", {glam(8, 64, 51200), "143"}},
      {"GLaM64B64E", {glam(64, 128, 256'000), ""}},  // "1.2T".
      {"PileGLaM126M64E", {glam(12, 12, 50304, 768, 64), "1.9"}},
      {"PileGLaM64B64E", {glam(64, 64, 50304), "1143"}},
      {"Pile126M", {gpt3(12, 768, 50304), ""}},  // Named after GPT-3's 125 million.
      {"Pile5B", {gpt3(24, 4096, 50304), "5"}},
      {"Pile175B", {gpt3(96, 12288, 50257), "175"}},
      {"Synthetic126M", {gpt3(12, 768, 50304), ""}},
      {"Synthetic5B", {gpt3(24, 4096, 50304), "5"}},
      {"Synthetic175B", {gpt3(96, 12288, 50257), "175"}},
      {"Grok", {grok(64), ""}},  // Grok-1, without biases: 314.
      {"GrokPP", {grok(64), ""}},
      {"GrokProxy", {grok(16), ""}},
      {"GrokProxyPP", {grok(16), ""}},
  };
  return table;
}

// Returns the number in billions, with as many digits as `published` has.
std::string billions(int64_t weights, const std::string& published) {
  const size_t point = published.find('.');
  const size_t digits = point == std::string::npos ? 0 : published.size() - point - 1;
  return fmt::format("{:.{}f}", static_cast<double>(weights) / 1e9, digits);
}

TEST_CASE("nvidia: each recipe has the weights of its formula, and as many as are published") {
  load_plugin(own_plugins("experiments") / "nvidia.so");
  for (const auto& [name, row] : rows()) {
    INFO(name);
    REQUIRE(config_of(name).task.instantiate()->model().parameters().elements() == row.weights);
    if (!row.published.empty()) REQUIRE(billions(row.weights, row.published) == row.published);
  }
  for (const ExperimentEntry& entry : registered_experiments()) {
    if (!entry.name.starts_with(full_name(""))) continue;
    INFO(entry.name << ": " << entry.summary << "; it needs a row in this table");
    const auto row = rows().find(entry.name.substr(full_name("").size()));
    REQUIRE(row != rows().end());
    // "26.8B weights" in the summary.
    std::smatch number;
    REQUIRE(std::regex_search(entry.summary, number, std::regex("([0-9.]+)B weights")));
    REQUIRE(billions(row->second.weights, number[1]) == number[1]);
  }
  // 97 billion of GLaM 64B/64E are active for a token: 2 of 64 experts.
  REQUIRE(billions(rows().at("GLaM64B64E").weights - 32 * 62 * 2 * 8192LL * 32768, "96.6") ==
          "96.6");
}

const MoeFeedForward::HParams& experts_of(const Template<SequenceLayer>& block) {
  return block.as<TransformerBlock::HParams>().ffn_tpl.as<MoeFeedForward::HParams>();
}

TEST_CASE("nvidia: the layers of GLaM alternate between experts and a gated feed-forward layer") {
  const TransformerLm::HParams lm = lm_of("GLaM64B64EProxy");
  const auto& stack = lm.stacked_transformer_tpl.as<Repeated::HParams>();
  REQUIRE(lm.num_layers.get() == 8);
  REQUIRE(stack.num_layers.get() == 4);
  const auto& blocks = stack.block_tpl.as<LayerSequence::HParams>().layers_tpl;
  REQUIRE(blocks.size() == 2);
  const MoeFeedForward::HParams& experts = experts_of(blocks[0]);
  REQUIRE(experts.num_experts.get() == 64);
  REQUIRE(!experts.use_gated_activation);
  const auto& router = experts.router_tpl.as<TopKRouter::HParams>();
  REQUIRE(router.top_k == 2);
  REQUIRE(router.capacity_factor.get() == 1.0);  // Two slots for each token.
  REQUIRE(router.load_balance_weight == 0.01);
  REQUIRE(router.load_balance_first_choices);
  REQUIRE(lm.final_ln_tpl.as<RmsNorm::HParams>().direct_scale);
  const auto& dense = blocks[1].as<TransformerBlock::HParams>().ffn_tpl.as<FeedForward::HParams>();
  REQUIRE(dense.use_gated_activation);
  REQUIRE(!dense.use_bias);
}

TEST_CASE("nvidia: all layers of Grok and MoELarge are mixtures, also in stages") {
  for (const std::string name : {"Grok", "GrokProxy", "GrokPP", "GrokProxyPP", "MoELarge"}) {
    INFO(name);
    const TransformerLm::HParams lm = lm_of(name);
    const auto& stack = lm.stacked_transformer_tpl.as<Repeated::HParams>();
    REQUIRE(stack.num_layers.get_or(lm.num_layers.get()) == lm.num_layers.get());
    REQUIRE(experts_of(stack.block_tpl).use_gated_activation == name.starts_with("Grok"));
  }
}

TEST_CASE("nvidia: fractions of a sequence per device are whole batches on the mesh") {
  const auto batch = [](const std::string& name) {
    return config_of(name).input.as<SyntheticInput::HParams>().global_batch_size.get();
  };
  REQUIRE(batch("Nvidia10B") == 4);   // A quarter, on 16 devices.
  REQUIRE(batch("Nvidia175B") == 6);  // A sixteenth, on 96.
  REQUIRE(config_of("Nvidia175B").task.as<SingleTask::HParams>().train.num_microbatches == 6);
  REQUIRE(config_of("GrokPP").task.as<SingleTask::HParams>().train.num_microbatches == 8);
}

// Attributes of paxml/contrib/gpu/scripts_gpu/configs.py.
TEST_CASE("nvidia: recipes for GPUs have Pax's batches, meshes, rates and steps") {
  struct Row {
    std::string name;
    int64_t batch, warmup, end, steps;
    double rate;
    std::vector<int64_t> ici, dcn;
  };
  const std::vector<int64_t> host = {1, 8, 1}, hosts = {1, 32, 1};
  for (const Row& row : std::vector<Row>{
           {"Pile126M", 256, 636, 500'000, 600'000, 6e-4, {8, 1, 1}, {8, 1, 1}},
           {"Pile5B", 2048, 115, 62'500, 75'000, 1.6e-4, host, hosts},
           {"Pile175B", 1536, 265, 108'600, 75'000, 2e-5, host, hosts},
           {"Synthetic126M", 256, 636, 500'000, 100, 6e-4, {8, 1, 1}, {8, 1, 1}},
           {"Synthetic5B", 2048, 115, 62'500, 100, 1.6e-4, host, hosts},
           {"Synthetic175B", 1536, 265, 108'600, 100, 2e-5, host, hosts},
           {"PileGLaM126M64E", 256, 636, 500'000, 600'000, 6e-4, {1, 1, 64, 1}, {}},
           {"PileGLaM64B64E", 2048, 398, 162'900, 600'000, 2e-5, {1, 1, 1, 8}, {1, 1, 64, 1}}}) {
    INFO(row.name);
    const ExperimentConfig config = config_of(row.name);
    const auto task = config.task.instantiate();
    const BaseOptimizer& optimizer = task->learner().optimizer();
    REQUIRE(config.input.instantiate()->global_batch_size() == row.batch);
    REQUIRE(config.input.holds<SyntheticInput::HParams>() == row.name.starts_with("Synthetic"));
    REQUIRE(config.mesh.ici_mesh_shape == row.ici);
    REQUIRE(config.mesh.dcn_mesh_shape == row.dcn);
    REQUIRE(task->train().num_train_steps == row.steps);
    REQUIRE(optimizer.learning_rate(row.warmup, row.steps) == Approx(row.rate));
    REQUIRE(optimizer.learning_rate(row.warmup / 2, row.steps) < 0.51 * row.rate);
    REQUIRE(optimizer.learning_rate(row.end, row.steps) == Approx(0.1 * row.rate));
    REQUIRE(optimizer.learning_rate((row.warmup + 1 + row.end) / 2, row.steps) ==
            Approx(0.55 * row.rate).epsilon(1e-3));
  }
}

// On its own mesh, without devices.
Plan plan_of(const std::string& name) {
  const TemporaryDirectory directory;
  const auto devices = make_test_devices(1, 1);
  ProcessGroup alone;
  Session session(config_of(name), {.run_directory = directory.path(), .allocates = false},
                  pointers(devices), alone);
  return make_plan(session.compiled_step());
}

TEST_CASE("nvidia: tokens travel to the experts of a device, whose weights do not leave it") {
  int64_t sent_tokens = 0, gathered_experts = 0;
  for (const PlannedCollective& use : plan_of("GrokProxy").collectives) {
    INFO(use.op << " of " << use.value << ", " << use.path);
    if (use.op == "all_to_all") {
      // The slots of one sequence, two for each of its 8192 tokens; an eighth of them stays.
      REQUIRE(use.mesh_axes == std::vector<std::string>{"data_expert"});
      REQUIRE(use.bytes == 2 * 8192 * 6144 * 2 / 8 * 7);
      sent_tokens += use.count;
    } else if (use.bytes > 1 << 28) {
      // Large: the one table, and a device's expert, which is gathered from eight hosts.
      if (use.mesh_axes == std::vector<std::string>{"data", "data_expert"}) continue;
      REQUIRE(use.mesh_axes == std::vector<std::string>{"data"});
      gathered_experts += use.op == "all_gather" ? use.count : 0;
    }
  }
  // In each of 16 layers to the experts and back: forward, again for the backward pass, backward.
  REQUIRE(sent_tokens == 16 * 2 * 3);
  REQUIRE(gathered_experts == 16 * 3 * 2);  // Three matrices, twice.
}

TEST_CASE("nvidia: experts that do not fill a period are an error") {
  REQUIRE_THROWS_WITH(config_of("GLaM64B64EProxy", {"num_layers=7"}),
                      Catch::Contains("moe_period=2 does not divide num_layers=7"));
}

using Lines = std::set<std::string>;

// The lines of `all` that begin with one of the paths.
Lines under(const std::vector<std::string>& paths, const Lines& all) {
  Lines some;
  for (const std::string& line : all)
    for (const std::string& path : paths)
      if (line.starts_with(path)) some.insert(line);
  return some;
}

TEST_CASE("nvidia: Meta's Llama 2 differs from Pax's in these points of the model only") {
  const std::vector<std::string> differences =
      diff(to_tree(lm_of("Llama2_7B")), to_tree(lm_of("MetaLlama2_7B")));
  Lines rest(differences.begin(), differences.end());
  const auto remove = [&rest](const Lines& lines) {
    for (const std::string& line : lines) {
      INFO(line);
      REQUIRE(rest.erase(line) == 1);
    }
  };
  const std::string block = "stacked_transformer_tpl.block_tpl.";
  remove({
      "vocab_size: 51200 -> 32000",
      "separate_embedding_tpl: unset -> Embedding",
      "softmax_tpl: SharedEmbeddingSoftmax -> FullSoftmax",
      "softmax_tpl.scale_sqrt_depth: true -> absent",  // The embedding is not multiplied.
      "softmax_tpl.use_bias: true -> false",
      "softmax_tpl.loss.soft_cap: 30.0 -> 0.0",
      block + "attention_tpl.use_bias: true -> false",
      block + "ffn_tpl.use_bias: true -> false",
      block + "norm_tpl.epsilon: 1e-06 -> 1e-05",
      "final_ln_tpl.epsilon: 1e-06 -> 1e-05",
      R"(params_init: {kind = "gaussian", scale = 0.023} -> {kind = "gaussian", scale = 0.02})",
  });
  // Follows from them.
  remove(under({"separate_embedding_tpl.", "softmax_tpl.multiplier", "softmax_tpl.vocab_size",
                "softmax_tpl.params_init", block + "attention_tpl.params_init",
                block + "ffn_tpl.params_init"},
               rest));
  // Differences in notation only: as many heads of keys as of queries; fans, which a normal
  // distribution does not use.
  remove({
      block + "attention_tpl.num_kv_heads: 32 -> unset",
      block + "attention_tpl.last_two_axes_fans: true -> false",
  });
  REQUIRE(rest == Lines{});
}

}  // namespace
}  // namespace tessera
