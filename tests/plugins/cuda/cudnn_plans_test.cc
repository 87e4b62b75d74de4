// SPDX-License-Identifier: Apache-2.0
// Tests that NVIDIA's cuDNN makes plans for our attention graphs on an H200 that a text describes.
// No GPU is needed, and nothing runs. (cudnn_test.cc tests the results of the graphs.)
#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/devices/cpu/device.h"
#include "core/ops/attention.h"
#include "plugins/configure.h"
#include "plugins/cuda/attention/cudnn_attention.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/registry.h"
#include "tasks/run/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {
namespace {

// The library's version, and the bytes of scratch memory of each plan (-1: not supported). Without
// cuDNN it is empty, and the test is skipped.
struct Plans {
  std::string version;
  std::vector<int64_t> scratch_bytes;
};

Plans made_plans(const std::vector<CudnnAttention>& attentions) {
  const TemporaryDirectory folder;
  std::string lines;
  for (const CudnnAttention& a : attentions)
    lines += fmt::format("{} {} {} {} {} {} {:d} {:d} {:d} {} {}\n", a.batch, a.queries, a.keys,
                         a.heads, a.kv_heads, a.head_dim, a.causal, a.gradient, a.deterministic,
                         a.scale, a.logit_cap);
  std::ofstream(folder / "attentions.txt") << lines;
  const Outcome outcome = shell(folder.path(),
                                fmt::format("env -u TESSERA_CUDA_DRIVER '{0}/bin/cudnn_plans' "
                                            "'{0}/lib/planning_driver/libcuda.so.1' "
                                            "'{1}/tests/plugins/cuda/h200.json' attentions.txt",
                                            TESSERA_BINARY_DIR, TESSERA_SOURCE_DIR),
                                std::chrono::minutes(10));
  INFO(outcome.out << outcome.errors);
  if (outcome.exit_code == 3) {
    skip_test(outcome.out);
    return {};
  }
  REQUIRE(outcome.exit_code == 0);
  Plans plans;
  std::istringstream out(outcome.out);
  out >> plans.version;
  for (int64_t bytes = 0; out >> bytes;) plans.scratch_bytes.push_back(bytes);
  REQUIRE(plans.scratch_bytes.size() == attentions.size());
  return plans;
}

CudnnAttention gradient_of(CudnnAttention attention, bool deterministic) {
  attention.gradient = true;
  attention.deterministic = deterministic;
  return attention;
}

constexpr CudnnAttention kSmall = {.batch = 64,
                                   .queries = 1024,
                                   .keys = 1024,
                                   .heads = 12,
                                   .kv_heads = 12,
                                   .head_dim = 64,
                                   .causal = true,
                                   .deterministic = true,
                                   .scale = 0.125f};
constexpr CudnnAttention kGrouped = {.batch = 8,
                                     .queries = 2048,
                                     .keys = 2048,
                                     .heads = 16,
                                     .kv_heads = 4,
                                     .head_dim = 128,
                                     .causal = true,
                                     .deterministic = true,
                                     .scale = 0.09f};

TEST_CASE("cuDNN's plans for an H200 need the memory that its own frontend's plans need") {
  const Plans plans = made_plans({kSmall, gradient_of(kSmall, false), kGrouped,
                                  gradient_of(kGrouped, false), gradient_of(kGrouped, true)});
  if (plans.version.empty()) return;
  if (!plans.version.starts_with("9.19."))
    return skip_test("the sizes are those of cuDNN 9.19, not " + plans.version);
  constexpr int64_t kSumsSmall = 64 * 12 * 1024 * 4, kSumsGrouped = 8 * 16 * 2048 * 4;
  REQUIRE(plans.scratch_bytes ==
          std::vector<int64_t>{
              256,                                                  // No scores in memory.
              kSumsSmall + 64 * kSumsSmall + 256,                   // 204 MB: dq in f32.
              256,                                                  //
              kSumsGrouped + 128 * kSumsGrouped + 134217728 + 256,  // 269 MB: dk, dv of 16 heads.
              kSumsGrouped + 1207959808});                          // 1.21 GB: the scores.
}

TEST_CASE("cuDNN makes plans for every mask, cap and grouping", "[full]") {
  std::vector<CudnnAttention> attentions;
  for (const int64_t head_dim : {8, 64, 128, 256})
    for (const int64_t kv_heads : {1, 4})
      for (const bool causal : {false, true})
        for (const float cap : {0.0f, 50.0f}) {
          CudnnAttention a = kGrouped;
          a.queries = a.keys = 200, a.heads = 4, a.kv_heads = kv_heads, a.head_dim = head_dim;
          a.causal = causal, a.logit_cap = cap;
          attentions.push_back(a);
          attentions.push_back(gradient_of(a, head_dim == 64));
        }
  const Plans plans = made_plans(attentions);
  for (size_t i = 0; i < plans.scratch_bytes.size(); ++i) {
    INFO("attention " << i);
    REQUIRE(plans.scratch_bytes[i] >= 0);
  }
}

// A set of attentions. Plans of different batches and scales differ only in memory, so they count
// as one, with the largest batch.
class Attentions {
 public:
  void add(CudnnAttention attention) {
    const int64_t batch = std::exchange(attention.batch, 0);
    attention.scale = 0.125f;
    int64_t& largest = batches_[attention];
    largest = std::max(largest, batch);
  }
  void add(const Attentions& others) {
    for (CudnnAttention each : others.all()) add(each);
  }
  std::vector<CudnnAttention> all() const {
    std::vector<CudnnAttention> all;
    for (const auto& [attention, batch] : batches_) all.emplace_back(attention).batch = batch;
    return all;
  }
  // Notes a step with heads larger than cuDNN and our kernels support.
  void refuse() { is_refused_ = true; }
  bool is_refused() const { return is_refused_; }

 private:
  std::map<CudnnAttention, int64_t> batches_;
  bool is_refused_ = false;
};

// Adds the attention nodes of a graph and of its loop bodies, with f32 replaced by bf16.
void collect(Graph graph, Attentions* found) {
  for (const Node& node : graph.nodes()) {
    for (const auto& body : node.bodies) collect(*body, found);
    if (node.op != &kAttentionOp && node.op != &kAttentionGradOp) continue;
    for (const ValueId input : node.inputs) {
      Type type = graph.type(input);
      if (type.dtype == DType::kF32) type.dtype = DType::kBF16;
      graph.value(input).type = std::move(type);
    }
    const auto attention = cudnn_attention(graph, node, true);
    INFO(node.path);
    // hf.Pretrained reads a model of a test, with heads of 4.
    const int64_t head_dim = graph.type(node.inputs[0]).axes[3].size;
    if (head_dim % 8 != 0) continue;
    if (head_dim > 256) {
      found->refuse();
      continue;
    }
    if (node.attributes.get(key::kSegments)) continue;  // Our own kernels compute packed rows.
    REQUIRE(attention);
    found->add(*attention);
  }
}

std::vector<std::string> settings_of(const ExperimentEntry& entry) {
  if (entry.name == "hf.Pretrained")
    return {"path=" TESSERA_SOURCE_DIR "/tests/golden/hugging_face/llama", "seq_len=16"};
  return {};
}

// The bundled experiments, by name.
std::vector<ExperimentEntry> experiments() {
  REQUIRE(load_plugins(find_plugins(plugin_path({}))).empty());
  std::vector<ExperimentEntry> found;
  for (const ExperimentEntry& entry : registered_experiments())
    if (entry.plugin.find("/fixtures/") == std::string::npos) found.push_back(entry);
  return found;
}

// Thrown when the attention of a step is known, to skip the rest of its compilation, which takes
// most of the time.
struct Collected {};

Attentions attentions_of(const ExperimentEntry& entry) {
  INFO(entry.name);
  Attentions found;
  const ExperimentConfig config = configure(entry, settings_of(entry)).config;
  const TemporaryDirectory directory;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  ProcessGroup alone;
  const auto collect_and_stop = [&](std::string_view stage, const Graph& graph) {
    if (stage != "fuse") return;
    collect(graph, &found);
    throw Collected();
  };
  REQUIRE_THROWS_AS(
      Session(config,
              {.run_directory = directory.path(), .allocates = false, .on_stage = collect_and_stop},
              {device.get()}, alone),
      Collected);
  return found;
}

// Requires plans for all attentions, in groups with a time limit each: a plan takes seconds, or a
// minute on a busy machine.
void require_plans(const Attentions& found) {
  constexpr size_t kGroup = 10;
  const std::vector<CudnnAttention> all = found.all();
  for (size_t begin = 0; begin < all.size(); begin += kGroup) {
    const std::vector<CudnnAttention> attentions(
        all.begin() + static_cast<std::ptrdiff_t>(begin),
        all.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kGroup, all.size())));
    const Plans plans = made_plans(attentions);
    for (size_t i = 0; i < plans.scratch_bytes.size(); ++i) {
      const CudnnAttention& a = attentions[i];
      INFO(fmt::format("batch {} queries {} heads {}/{} head_dim {} gradient {}", a.batch,
                       a.queries, a.heads, a.kv_heads, a.head_dim, a.gradient));
      REQUIRE(plans.scratch_bytes[i] >= 0);
    }
  }
}

TEST_CASE("cuDNN makes plans for the attention of an experiment of each family") {
  Attentions found;
  std::string last;
  for (const ExperimentEntry& entry : experiments())
    if (family_of(entry.name) != std::exchange(last, family_of(entry.name)))
      found.add(attentions_of(entry));
  REQUIRE(found.all().size() >= 5);
  require_plans(found);
}

TEST_CASE("cuDNN makes plans for the attention of every experiment", "[full]") {
  Attentions found;
  std::set<std::string> refused;
  for (const ExperimentEntry& entry : experiments()) {
    const Attentions its = attentions_of(entry);
    found.add(its);
    if (its.is_refused()) refused.insert(entry.name);
  }
  REQUIRE(refused ==
          std::set<std::string>{"c4_multislice.Spmd22B1xv4_384", "c4_multislice.Spmd22B2xv4_384"});
  require_plans(found);
}

}  // namespace
}  // namespace tessera::cuda
