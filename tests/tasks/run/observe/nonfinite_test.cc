// SPDX-License-Identifier: Apache-2.0
// Tests the search for the first value that is not finite: in a run that skips a step, and by a
// replay.
#include <cmath>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/fprop_scope.h"
#include "layers/models/language_model.h"
#include "tasks/replay/replay.h"
#include "tasks/run/observe/value_range.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int64_t kBadStep = 3, kSteps = 5;  // Numbered as in metrics.jsonl.

Tensor line_of_log(const Tensor& x) { return log(x); }
constexpr int kLogLine = __LINE__ - 1;
Tensor line_of_square(const Tensor& x) { return square(x); }
constexpr int kSquareLine = __LINE__ - 1;
Tensor line_of_root(const Tensor& x) { return sqrt(x); }
constexpr int kRootLine = __LINE__ - 1;

// A feed-forward layer. In the bad step layer 1 of the stack computes the logarithm of a negative
// number, or a square that is too large, or a root that only its gradient cannot have.
class Faulty final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Faulty;
    static constexpr std::string_view kName = "Faulty";
    Template<UnaryLayer> inner_tpl = FeedForward::HParams{};
    std::string fault = "log";
    FIELDS(inner_tpl, fault)
  };
  explicit Faulty(const HParams& p) : p_(p), inner_(child("inner", p.inner_tpl)) {}

 private:
  Tensor fprop(Tensor x) const override {
    const Tensor y = inner_(x);
    const FpropScope& call = FpropScope::current();
    if (call.mode() == Mode::kEval) return y;
    const Tensor is_bad = logical_and(equal(call.step(), constant(kBadStep - 1, DType::kI32)),
                                      equal(loop_index(), constant(1.0, DType::kI32)));
    const auto factor = [&](double good, double bad) {
      return where(is_bad, constant(bad, y.dtype()), constant(good, y.dtype()));
    };
    const Tensor positive = square(y) + 1.0;
    if (p_.fault == "log") return y + line_of_log(positive * factor(1.0, -1.0));
    if (p_.fault == "square") return y + line_of_square(positive * factor(1.0, 1e30));
    return y + line_of_root(positive * factor(1.0, 0.0));
  }

  HParams p_;
  ChildLayer<UnaryLayer> inner_;
};

struct Setting {
  std::string fault = "log";
  int line = kLogLine;
  std::string op = "log";
  DType compute = DType::kF32;
  int64_t microbatches = 1;
  std::vector<int64_t> mesh = {1, 1, 1};
  Strategy strategy = Strategy::kReplicas;
};

ExperimentConfig faulty_config(const Setting& setting) {
  ExperimentConfig config = tiny_config(kSteps, setting.compute);
  config.eval_inputs.clear();
  SingleTask::HParams& task = task_of(config);
  auto& lm = task.model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = 2;
  lm.stacked_transformer_tpl = Repeated::HParams{
      .block_tpl = TransformerBlock::HParams{.ffn_tpl = Faulty::HParams{.fault = setting.fault}}};
  task.train.num_microbatches = setting.microbatches;
  config.mesh.ici_mesh_shape = setting.mesh;
  config.mesh.axis_names = strategy_axes(setting.strategy, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(setting.strategy);
  return config;
}

RunWith options_of(const Setting& setting) {
  RunWith options;
  options.devices = 1;
  for (const int64_t size : setting.mesh) options.devices *= size;
  return options;
}

TEST_CASE("a run names the op, layer and line where a value that is not finite begins") {
  const Setting settings[] = {
      {},
      {.fault = "square", .line = kSquareLine, .op = "square", .compute = DType::kBF16},
      {.fault = "root", .line = kRootLine, .op = ""},
      {.microbatches = 2},
      {.mesh = {1, 2, 2}, .strategy = Strategy::kTensor},
      {.fault = "root", .line = kRootLine, .op = "", .mesh = {1, 2, 1}},
      {.microbatches = 2, .mesh = {2, 1, 1, 1}, .strategy = Strategy::kPipeline},
  };
  for (const Setting& setting : settings) {
    INFO(setting.fault << ", " << setting.microbatches << " microbatches, " << setting.mesh.size());
    const TemporaryDirectory directory;
    REQUIRE(run_tiny(faulty_config(setting), directory.path(), options_of(setting)) == 0);
    // One step is skipped, and its repetition does not count as another one.
    REQUIRE(numbers_of(directory.path(), "skipped") == std::vector<double>{0, 0, 1, 1, 1});
    std::vector<std::string> found;
    std::istringstream lines(read_file(directory / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json json = parse_json(line, "a line"); json.find("reason") != nullptr)
        found.push_back(json.at("reason").as_string());
    REQUIRE(found.size() == 1);
    INFO(found[0]);
    if (test_device_kind() == "guarded") {  // The next step is under way by then.
      REQUIRE_THAT(found[0], Catch::StartsWith("--mode=replay --step=3 --find=nonfinite names"));
      continue;
    }
    const std::string phase = setting.op.empty() ? " [backward]" : " [forward]";
    REQUIRE_THAT(found[0], Contains("the first value that is not finite: launch ") &&
                               Contains(phase) && Contains(setting.op) &&
                               Contains("in lm.transformer.x_layers[1].ffn") &&
                               Contains(fmt::format("nonfinite_test.cc:{}", setting.line)) &&
                               Contains("elements are not finite") &&
                               Contains("its inputs are finite: it begins here"));
    const bool has_devices = options_of(setting).devices > 1;
    REQUIRE((found[0].find(" on device ") != std::string::npos) == has_devices);
  }
}

TEST_CASE("a replay finds whether a step has values that are not finite, and changes nothing") {
  const TemporaryDirectory directory;
  const Setting setting;
  const ExperimentConfig config = faulty_config(setting);
  REQUIRE(run_tiny(config, directory.path()) == 0);
  const std::string before = read_file(directory / "metrics.jsonl");
  const auto replayed = [&](int64_t step) {
    RunWith options = options_of(setting);
    options.job_log_dir = directory.path();
    options.verbosity = Verbosity::kSilent;
    ProcessGroup alone;
    const TinyDevices devices;
    return replay_run({config, options, devices.in_order(), alone},
                      {.replay = {.step = step,
                                  .checkpoint = {CheckpointChoice::Kind::kStep, 0},
                                  .finds_nonfinite = true}})
        ->run();
  };
  REQUIRE(replayed(kBadStep) == 1);
  REQUIRE(replayed(kBadStep - 1) == 0);
  REQUIRE(read_file(directory / "metrics.jsonl") == before);
}

TEST_CASE("the range of an array is that of its finite elements") {
  const Type type = parse_type("f32[\"batch=2 seq=3\"]");
  const double nan = std::nan(""), infinity = HUGE_VAL;
  REQUIRE(range_text(type, {1, -2, 0, 4, 5, 1}) == "-2 to 5");
  REQUIRE(range_text(type, {3, 3, 3, 3, 3, 3}) == "3");
  REQUIRE(range_text(type, {1, -2, 0, nan, infinity, nan}) ==
          "3 of 6 elements are not finite; the first, [1, 0], is nan; the others -2 to 1");
  REQUIRE(range_text(parse_type("f32[\"seq=2\"]"), {-infinity, nan}) ==
          "2 of 2 elements are not finite; the first, [0], is -inf");
  for (const auto& [dtype, bits] :
       {std::pair(DType::kF32, 0x7f7fffffu), std::pair(DType::kBF16, 0x7f7f7f7fu)}) {
    const Type one = make_type(dtype, {{"batch", dtype == DType::kF32 ? 1 : 2, {}}});
    const auto finite = [&one = one](uint32_t word) {
      return all_finite(one, std::as_bytes(std::span(&word, 1)));
    };
    REQUIRE(finite(bits));                                          // The largest number,
    REQUIRE(!finite(bits + (dtype == DType::kF32 ? 1 : 0x10000)));  // and what follows: infinity.
    REQUIRE(!finite(0xffc00000u));
  }
}

}  // namespace
}  // namespace tessera
