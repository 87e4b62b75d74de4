// SPDX-License-Identifier: Apache-2.0
// Plans of any mesh: plan.json has the members that docs/formats.md lists, the text has the same
// content, and the totals add up.
#include "tasks/planner/plan.h"

#include <set>
#include <sstream>

#include <boost/property_tree/json_parser.hpp>
#include <boost/property_tree/ptree.hpp>

#include "layers/embeddings/position_embedding.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Json = boost::property_tree::ptree;

Json parsed(const std::string& text) {
  std::istringstream stream(text);
  Json json;
  boost::property_tree::read_json(stream, json);
  return json;
}

Plan plan_of(const ExperimentConfig& config) {
  const TemporaryDirectory directory;
  TinyDevices devices;
  ProcessGroup alone;
  Session session(config, {.run_directory = directory.path(), .allocates = false},
                  devices.in_order(), alone);
  return make_plan(session.compiled_step());
}

Plan plan_of(const MeshConfig& mesh, Strategy strategy, int64_t microbatches = 1,
             DType reduce = DType::kF32) {
  ExperimentConfig config = tiny_config();
  task_of(config).train.num_microbatches = microbatches;
  task_of(config).dtypes = DTypePolicy{.compute = DType::kBF16, .reduce = reduce};
  config.mesh = mesh;
  config.rules = strategy_rules(strategy);
  return plan_of(config);
}

Plan fully_sharded() {
  return plan_of({.ici_mesh_shape = {1, 2, 2}, .dcn_mesh_shape = {1, 2, 1}},
                 Strategy::kFullyShardedTensor);
}

std::set<std::string> members(const Json& json) {
  std::set<std::string> names;
  for (const auto& [name, value] : json) names.insert(name);
  return names;
}

TEST_CASE("plan.json has the members that the documentation lists, and no others") {
  const Json json = parsed(plan_json(fully_sharded()));
  REQUIRE(members(json) == std::set<std::string>{"parameters", "devices", "mesh", "tokens_per_step",
                                                 "flops_per_step", "flops_per_device",
                                                 "launches_per_step", "memory_per_device",
                                                 "peak_bytes", "arena_bytes", "saved_for_backward",
                                                 "communication", "collectives"});
  REQUIRE(members(json.get_child("memory_per_device")) ==
          std::set<std::string>{"parameters", "optimizer_state", "batch", "gradients",
                                "activations", "temporaries"});
  for (const auto& [unused, one] : json.get_child("collectives"))
    REQUIRE(members(one) == std::set<std::string>{"op", "value", "mesh_axes", "link", "dtype",
                                                  "bytes", "count", "phase", "path", "source"});
  for (const auto& [unused, total] : json.get_child("communication"))
    REQUIRE(members(total) == std::set<std::string>{"mesh_axes", "link", "count", "bytes"});
  REQUIRE(json.get_child("mesh").size() == 3);
  REQUIRE(json.get<int64_t>("devices") == 8);
}

TEST_CASE("the memory and communication totals of a plan add up") {
  const Plan plan = fully_sharded();
  int64_t memory = 0;
  for (const auto& [name, bytes] : plan.memory) {
    REQUIRE(bytes >= 0);
    memory += bytes;
  }
  REQUIRE(memory == plan.peak);
  REQUIRE(plan.peak <= plan.arena);
  int64_t sent = 0, total = 0, slow = 0;
  for (const PlannedCollective& one : plan.collectives) {
    sent += one.bytes_per_step();
    // `data` has two slices of two devices here, so its collectives use the slow links.
    const bool data =
        std::find(one.mesh_axes.begin(), one.mesh_axes.end(), "data") != one.mesh_axes.end();
    REQUIRE((one.link == Link::kDcn) == data);
    if (one.link == Link::kDcn) slow += one.bytes_per_step();
  }
  for (const AxisTotal& axes : plan.totals) {
    total += axes.bytes;
    if (axes.link == Link::kDcn) slow -= axes.bytes;
  }
  REQUIRE(sent > 0);
  REQUIRE(total == sent);
  REQUIRE(slow == 0);
}

TEST_CASE("every collective names the source line it serves, which is never in a pass") {
  for (const Strategy strategy : {Strategy::kReplicas, Strategy::kFullySharded, Strategy::kSequence,
                                  Strategy::kFullyShardedSequence}) {
    const Plan plan = plan_of({.ici_mesh_shape = {1, 2, 2}}, strategy);
    REQUIRE(plan.collectives.size() > 3);
    for (const PlannedCollective& one : plan.collectives) {
      CAPTURE(one.op, one.value, one.path, one.source);
      REQUIRE((one.source.starts_with("layers/") || one.source.starts_with("tasks/")));
      REQUIRE_FALSE(one.source.starts_with("layers/layer.cc"));
    }
  }
}

TEST_CASE("FSDP's gathers and scatters are attributed to the layer that reads the weight") {
  const Plan plan = plan_of({.ici_mesh_shape = {1, 4, 1}}, Strategy::kFullySharded);
  std::map<std::string, std::string> source;  // By op, for the FFN's up projection.
  for (const PlannedCollective& one : plan.collectives)
    if (one.value.ends_with("ffn.up")) source[one.op] = one.source;
  REQUIRE(source.size() == 2);
  REQUIRE(source.at("all_gather").starts_with("layers/feed_forward/feed_forward.cc:"));
  REQUIRE(source.at("reduce_scatter") == source.at("all_gather"));
}

TEST_CASE(
    "only the rows of positions that a sequence uses are sent, whatever the size of the table") {
  const auto sent = [](int64_t rows) {
    ExperimentConfig config = tiny_config();
    auto& lm =
        task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
    lm.position_emb_tpl = TrainablePositionalEmbedding::HParams{.max_seq_length = rows};
    config.mesh = {.ici_mesh_shape = {1, 4, 1}};
    config.rules = strategy_rules(Strategy::kFullySharded);
    std::map<std::string, int64_t> bytes;  // By op.
    for (const PlannedCollective& one : plan_of(config).collectives)
      if (one.path == "lm.position_emb") bytes[one.op] += one.bytes_per_step();
    return bytes;
  };
  const auto bytes = sent(16);
  REQUIRE(bytes.at("all_gather") > 0);
  REQUIRE(bytes.at("reduce_scatter") > 0);
  REQUIRE(sent(4096) == bytes);
}

bool is_vector(const PlannedCollective& one) {
  return one.value.ends_with("scale") || one.value.ends_with("bias");
}

// Sent by a device per step, for matrices.
int64_t gradient_bytes(const Plan& plan, const std::string& op, const std::string& mesh_axis) {
  int64_t bytes = 0;
  for (const PlannedCollective& one : plan.collectives)
    if (one.op == op && one.value.starts_with("gradient of ") && !is_vector(one) &&
        std::ranges::find(one.mesh_axes, mesh_axis) != one.mesh_axes.end())
      bytes += one.bytes_per_step();
  return bytes;
}

TEST_CASE("replicas sum their gradients once per step, whatever the number of microbatches") {
  for (const Strategy strategy :
       {Strategy::kReplicas, Strategy::kFullySharded, Strategy::kFullyShardedTensor}) {
    for (const DType reduce : {DType::kF32, DType::kBF16}) {
      CAPTURE(enum_name(strategy), dtype_name(reduce));
      const MeshConfig mesh = {.ici_mesh_shape = {2, 2, 1}};
      const Plan one = plan_of(mesh, strategy, 1), two = plan_of(mesh, strategy, 2, reduce);
      const int64_t bytes = gradient_bytes(one, "all_reduce", "replica");
      REQUIRE(bytes > 0);
      REQUIRE(gradient_bytes(two, "all_reduce", "replica") == bytes);
      // Shards are of one sum: each microbatch's terms go to the device that has the shard.
      const int64_t scattered = gradient_bytes(one, "reduce_scatter", "data");
      REQUIRE((scattered > 0) == (strategy != Strategy::kReplicas));
      const int64_t of_both = gradient_bytes(two, "reduce_scatter", "data");
      REQUIRE(of_both == (reduce == DType::kF32 ? 2 : 1) * scattered);
    }
  }
}

TEST_CASE("scales of all layers are gathered, and their gradients reduced, once a step") {
  for (const int64_t microbatches : {1, 4}) {
    const Plan plan = plan_of({.ici_mesh_shape = {1, 2, 1}}, Strategy::kFullySharded, microbatches);
    std::map<std::string, int64_t> counts;  // By op and weight.
    for (const PlannedCollective& one : plan.collectives)
      if (is_vector(one)) counts[one.op + " " + one.value] += one.count;
    CAPTURE(microbatches, counts);
    REQUIRE(counts.size() >= 6);  // Two norms of a stack and the last one.
    for (const auto& [what, count] : counts) REQUIRE(count == 1);
  }
}

TEST_CASE("text and JSON of a plan have the same content, in 100 columns") {
  const Plan plan = fully_sharded();
  const std::string text = plan_text(plan);
  const Json json = parsed(plan_json(plan));
  const auto says = [&](const std::string& words) {
    CAPTURE(text, words);
    REQUIRE(text.find(words) != std::string::npos);
  };
  says("parameters         " + json.get<std::string>("parameters"));
  says("8 (replica=1 data=4 (2 within a slice x 2 slices) mdl=2)");
  says(json.get<std::string>("peak_bytes") + " bytes");
  says(json.get<std::string>("arena_bytes") + " bytes, for all programs");
  for (const auto& [name, bytes] : json.get_child("saved_for_backward")) says("  " + name + " ");
  std::map<std::string, int> rows;  // By source.
  int all_rows = 0;
  for (const auto& [unused, one] : json.get_child("collectives")) {
    ++rows[one.get<std::string>("source")];
    ++all_rows;
    REQUIRE(one.get<int64_t>("bytes") > 0);
    REQUIRE(one.get<int64_t>("count") > 0);
  }
  // Below each source line are as many rows as JSON has for it.
  std::map<std::string, int> printed;
  std::istringstream lines(text.substr(text.find("collectives per device, by")));
  std::string source;
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.size() <= 100);
    if (rows.contains(line))
      source = line;
    else if (line.find(" x ") != std::string::npos)
      ++printed[source];
  }
  REQUIRE(printed == rows);
  for (const auto& [unused, total] : json.get_child("communication"))
    says(total.get<std::string>("count") + " collectives");
}

TEST_CASE("a plan for one device has no communication") {
  const Plan plan = plan_of({.ici_mesh_shape = {1, 1, 1}}, Strategy::kFullyShardedTensor);
  REQUIRE(plan.collectives.empty());
  REQUIRE_THAT(plan_text(plan), Catch::Contains("communication: none"));
  REQUIRE(parsed(plan_json(plan)).get_child("collectives").empty());
}

}  // namespace
}  // namespace tessera
