// SPDX-License-Identifier: Apache-2.0
// Optimizer state in bf16: its values against the formulas in double precision, what rounding does
// to slow averages, runs on several devices, resumes, checkpoints of the other dtype, and the
// settings that are refused.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/planner/plan.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/pipeline_schedules.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/optimizer_trial.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr StatePolicy kBothNarrow{.first_moment = DType::kBF16, .second_moment = DType::kBF16};
StatePolicy nearest(StatePolicy state) {
  state.rounding = Rounding::kNearest;
  return state;
}

const Type kMatrix = make_type(DType::kF32, {{"embed", 3, {}}, {"mlp", 4, {}}});

double to_bf16(double value) { return static_cast<float>(BFloat16(static_cast<float>(value))); }

// Neighbours in bf16 are at most this far apart.
double spacing(double value) { return std::ldexp(1.0, std::ilogb(value) - 7); }

TEST_CASE("AdamW with state in bf16 steps in full precision and rounds what it stores") {
  AdamW::HParams p{.beta2 = 0.99, .epsilon = 1e-3, .state = nearest(kBothNarrow)};
  OptimizerTrial trial{.optimizer_tpl = p, .type = kMatrix, .parameter = some_numbers(12, 7)};
  std::vector<double> w = trial.parameter, m(12, 0.0), v(12, 0.0);
  const std::vector<std::vector<double>> gradients = {some_numbers(12, 1), some_numbers(12, 2),
                                                      some_numbers(12, 3)};
  for (size_t t = 1; t <= gradients.size(); ++t)
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradients[t - 1][i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.99 * v[i] + 0.01 * g * g;
      const double deviation = std::sqrt(v[i] / (1.0 - std::pow(0.99, t)));
      w[i] -= 0.1 * m[i] / (1.0 - std::pow(0.9, t)) / (deviation + 1e-3);
      m[i] = to_bf16(m[i]);
      v[i] = to_bf16(v[i]);
    }
  trial.run(gradients);
  for (size_t i = 0; i < w.size(); ++i) {
    REQUIRE(trial.parameter[i] == Approx(w[i]).epsilon(1e-5).margin(1e-5));
    REQUIRE(trial.slots[0][i] == m[i]);
    REQUIRE(trial.slots[1][i] == v[i]);
  }
}

TEST_CASE("every optimizer stores a neighbour in bf16 of the state that it has in f32") {
  struct Case {
    Template<BaseOptimizer> wide, narrow;
  };
  const auto both = [](auto p, StatePolicy state) {
    Case row{p, p};
    p.state = state;
    row.narrow = p;
    return row;
  };
  constexpr StatePolicy kFirstNarrow{.first_moment = DType::kBF16};
  constexpr StatePolicy kSecondNarrow{.second_moment = DType::kBF16};
  const std::vector<Case> cases = {
      both(AdamW::HParams{}, kBothNarrow),
      both(AdamW::HParams{}, kFirstNarrow),
      both(AdamW::HParams{}, kSecondNarrow),
      both(Adam::HParams{.clip_threshold = 0.5}, kBothNarrow),
      both(Adam::HParams{.clip_threshold = 0.5}, kSecondNarrow),
      both(Adam::HParams{.clip_threshold = 0.0}, nearest(kBothNarrow)),
      both(Adafactor::HParams{.beta1 = 0.9, .min_dim_size_to_factor = 2}, kBothNarrow),
      both(Adafactor::HParams{.min_dim_size_to_factor = 200}, kSecondNarrow),
      both(Adafactor::HParams{.beta1 = 0.9, .min_dim_size_to_factor = 2}, nearest(kFirstNarrow)),
      both(AdamW::HParams{.amsgrad = true}, kBothNarrow),
      both(Lion::HParams{}, kFirstNarrow),
      both(Lamb::HParams{}, kBothNarrow),
      both(Adagrad::HParams{}, kSecondNarrow),
      both(RmsProp::HParams{.momentum = 0.9, .centered = true}, kBothNarrow),
      both(RmsProp::HParams{}, nearest(kSecondNarrow)),
      both(ScheduleFreeAdamW::HParams{}, kSecondNarrow),
      both(Sgd::HParams{.momentum = 0.9}, kFirstNarrow),
      both(Sgd::HParams{.momentum = 0.9, .nesterov = true}, nearest(kFirstNarrow))};
  for (const Case& row : cases) {
    INFO(row.wide.name());
    OptimizerTrial wide{
        .optimizer_tpl = row.wide, .type = kMatrix, .parameter = some_numbers(12, 7)};
    OptimizerTrial narrow = wide;
    narrow.optimizer_tpl = row.narrow;
    wide.run({some_numbers(12, 1)});
    narrow.run({some_numbers(12, 1)});
    REQUIRE(narrow.parameter == wide.parameter);  // The first step starts from zeros.
    REQUIRE(narrow.slots.size() == wide.slots.size());
    const std::vector<Slot> slots = row.narrow.instantiate()->slots({"w", kMatrix, {}});
    int64_t narrow_slots = 0;
    for (size_t s = 0; s < slots.size(); ++s)
      for (size_t i = 0; i < wide.slots[s].size(); ++i) {
        const double exact = wide.slots[s][i], stored = narrow.slots[s][i];
        if (slots[s].type.dtype == DType::kF32) {
          REQUIRE(stored == exact);
          continue;
        }
        ++narrow_slots;
        REQUIRE(stored == to_bf16(stored));
        REQUIRE(std::abs(stored - exact) < spacing(exact));
      }
    REQUIRE(narrow_slots > 0);
  }
}

// The mean second moment after gradients of 1, and then many of 0.
double second_moment_after_zeros(StatePolicy state, int64_t zeros) {
  const Type type = make_type(DType::kF32, {{"embed", 512, {}}});
  OptimizerTrial trial{.optimizer_tpl = AdamW::HParams{.beta2 = 0.999, .state = state},
                       .type = type,
                       .parameter = std::vector<double>(512, 0.0)};
  std::vector<std::vector<double>> gradients(static_cast<size_t>(zeros) + 1,
                                             std::vector<double>(512, 0.0));
  gradients[0].assign(512, 1.0);
  trial.run(gradients);
  double sum = 0.0;
  for (const double v : trial.slots[1]) sum += v;
  return sum / 512.0;
}

TEST_CASE("a slow average in bf16 decays if it is rounded stochastically, and not to nearest") {
  const double first = second_moment_after_zeros({}, 0);
  const double expected = first * std::pow(0.999, 200);
  REQUIRE(second_moment_after_zeros({}, 200) == Approx(expected).epsilon(1e-4));
  REQUIRE(second_moment_after_zeros(kBothNarrow, 200) == Approx(expected).epsilon(1e-2));
  REQUIRE(second_moment_after_zeros(nearest(kBothNarrow), 200) == to_bf16(first));
}

std::string refusal(const Template<BaseOptimizer>& optimizer_tpl) {
  try {
    optimizer_tpl.instantiate();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("optimizers refuse dtypes that state cannot have, and those of state that they lack") {
  constexpr StatePolicy kFirstNarrow{.first_moment = DType::kBF16};
  REQUIRE(refusal(AdamW::HParams{.state = {.first_moment = DType::kI32}}) ==
          "AdamW: state.first_moment is i32, expected f32 or bf16");
  REQUIRE(refusal(Adam::HParams{.state = {.second_moment = DType::kF64}}) ==
          "Adam: state.second_moment is f64, expected f32 or bf16");
  REQUIRE(refusal(Sgd::HParams{.state = kFirstNarrow}) ==
          "Sgd: state.first_moment is bf16, but Sgd with these settings stores no such moment; "
          "leave it at f32");
  REQUIRE(refusal(Sgd::HParams{.momentum = 0.9, .state = kFirstNarrow}) == "");
  REQUIRE_THAT(refusal(Sgd::HParams{.momentum = 0.9, .state = kBothNarrow}),
               Catch::Contains("state.second_moment is bf16, but Sgd"));
  REQUIRE_THAT(refusal(Adafactor::HParams{.state = kBothNarrow}),
               Catch::Contains("state.first_moment is bf16, but Adafactor"));
  REQUIRE(refusal(Adafactor::HParams{.beta1 = 0.9, .state = kBothNarrow}) == "");
  REQUIRE_THAT(refusal(Lion::HParams{.state = kBothNarrow}),
               Catch::Contains("state.second_moment is bf16, but Lion"));
  REQUIRE_THAT(refusal(RmsProp::HParams{.state = kBothNarrow}),
               Catch::Contains("state.first_moment is bf16, but RmsProp"));
}

// A tiny run with AdamW, or Pax's Adam with its cap.
enum class Update { kFused, kCapped };
ExperimentConfig narrow_config(int64_t steps, StatePolicy state, Update update = Update::kFused) {
  ExperimentConfig config = tiny_config(steps);
  Learner::HParams& learner = task_of(config).learner;
  if (update == Update::kFused)
    learner.optimizer_tpl = AdamW::HParams{.learning_rate = 3e-3, .state = state};
  else
    learner.optimizer_tpl = Adam::HParams{.learning_rate = 3e-3, .state = state};
  return config;
}

// Returns all arrays of a checkpoint whose paths begin with `prefix`.
std::map<std::string, std::vector<std::byte>> arrays_of(const fs::path& directory, int64_t step,
                                                        const std::string& prefix) {
  const Checkpoint checkpoint = CheckpointStore(directory / "checkpoints").open(step);
  std::map<std::string, std::vector<std::byte>> arrays;
  for (const auto& [path, entry] : checkpoint.entries()) {
    if (path.starts_with(prefix)) arrays[path] = array_bytes(checkpoint, path);
  }
  return arrays;
}

TEST_CASE("a run with state in bf16 resumes bit for bit") {
  for (const Update update : {Update::kFused, Update::kCapped}) {
    const TemporaryDirectory directory;
    ExperimentConfig config = narrow_config(6, kBothNarrow, update);
    task_of(config).train.save_interval_steps = 4;
    REQUIRE(run_tiny(config, directory / "whole") == 0);
    REQUIRE(run_tiny(config, directory / "broken") == 0);
    fs::remove_all(directory / "broken/checkpoints/step_0000000006");
    REQUIRE(run_tiny(config, directory / "broken") == 0);
    REQUIRE(losses_of(directory / "broken") == losses_of(directory / "whole"));
    const auto state = arrays_of(directory / "whole", 6, "learner/");
    REQUIRE(state == arrays_of(directory / "broken", 6, "learner/"));
    REQUIRE(state.size() > 6);
  }
}

// Runs four steps on one device and on a mesh of this shape. Gradients differ by their rounding,
// which rarely changes how a number of bf16 is rounded. With other random bits about half of them
// would be rounded otherwise.
void require_same_rounding(ExperimentConfig config, const std::vector<int64_t>& shape,
                           Strategy strategy, const Template<PipelineSchedule>& schedule = {},
                           const std::vector<int64_t>& layers_per_piece = {}) {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(config, directory / "one") == 0);
  config.mesh.ici_mesh_shape = shape;
  config.mesh.axis_names = strategy_axes(strategy, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(strategy);
  task_of(config).train.pipeline_schedule = schedule;
  task_of(config).train.layers_per_piece = layers_per_piece;
  RunWith options;
  options.devices = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  REQUIRE(run_tiny(config, directory / "split", options) == 0);
  int64_t elements = 0, different = 0;
  const auto got = arrays_of(directory / "split", 4, "learner/");
  for (const auto& [path, bytes] : arrays_of(directory / "one", 4, "learner/")) {
    INFO(path);
    const std::vector<std::byte>& other = got.at(path);
    REQUIRE(other.size() == bytes.size());
    for (size_t i = 0; i + 1 < bytes.size(); i += 2, ++elements)
      different += bytes[i] != other[i] || bytes[i + 1] != other[i + 1] ? 1 : 0;
  }
  REQUIRE(elements > 1000);
  REQUIRE(different < elements / 20);
}

TEST_CASE("stochastic rounding on four devices draws the numbers of one device") {
  for (const Update update : {Update::kFused, Update::kCapped})
    require_same_rounding(narrow_config(4, kBothNarrow, update), {1, 2, 2},
                          Strategy::kFullyShardedTensor);
}

TEST_CASE("stochastic rounding in a pipeline draws the numbers of one device") {
  struct Case {
    int64_t layers = 4, chunks = 1;
    std::vector<int64_t> layers_per_piece = {};
  };
  for (const Case& trial : {Case{}, Case{.chunks = 2}, Case{3, 1, {2, 1}}}) {
    INFO(trial.layers << " layers in " << trial.chunks << " chunks on each of two stages");
    ExperimentConfig config = narrow_config(4, kBothNarrow);
    auto& model = task_of(config).model.as<LanguageModel::HParams>();
    auto& lm = model.lm_tpl.as<TransformerLm::HParams>();
    lm.num_layers = trial.layers;
    lm.stacked_transformer_tpl = Repeated::HParams{};
    task_of(config).train.num_microbatches = 4;
    Template<PipelineSchedule> schedule;
    if (trial.chunks > 1)
      schedule = InterleavedOneForwardOneBackward::HParams{.chunks = trial.chunks};
    require_same_rounding(config, {2, 1, 1, 1}, Strategy::kPipeline, schedule,
                          trial.layers_per_piece);
  }
}

TEST_CASE("a run may change the dtype of its state at a checkpoint, which is converted") {
  const TemporaryDirectory directory;
  ExperimentConfig config = narrow_config(2, {});
  REQUIRE(run_tiny(config, directory.path()) == 0);
  const auto wide = arrays_of(directory.path(), 2, "learner/m/");
  RunWith options;
  options.allow_config_change = true;
  ExperimentConfig narrow = narrow_config(4, kBothNarrow);
  task_of(narrow).learner.optimizer_tpl.as<AdamW::HParams>().learning_rate = 0.0;
  REQUIRE(run_tiny(narrow, directory.path(), options) == 0);
  const auto rounded = arrays_of(directory.path(), 4, "learner/m/");
  REQUIRE(rounded.size() == wide.size());
  for (const auto& [path, bytes] : rounded) REQUIRE(2 * bytes.size() == wide.at(path).size());
  REQUIRE(run_tiny(narrow_config(6, {}), directory.path(), options) == 0);
  for (const auto& [path, bytes] : arrays_of(directory.path(), 6, "learner/m/"))
    REQUIRE(bytes.size() == wide.at(path).size());
  const std::vector<double> losses = numbers_of(directory.path(), "loss");
  REQUIRE(losses.size() == 6);
  for (const double loss : losses) REQUIRE(std::isfinite(loss));
}

TEST_CASE("the plan counts state in bf16 with half the bytes") {
  const auto state_bytes = [](StatePolicy state) {
    const TemporaryDirectory directory;
    const TinyDevices devices;
    ProcessGroup alone;
    Session session(narrow_config(1, state),
                    {.run_directory = directory.path(), .allocates = false}, devices.in_order(),
                    alone);
    const Plan plan = make_plan(session.compiled_step());
    const auto row = std::ranges::find(plan.memory, "optimizer_state", &NamedBytes::name);
    REQUIRE(row != plan.memory.end());
    return std::pair(row->bytes, plan.parameters);
  };
  const auto [wide, parameters] = state_bytes({});
  REQUIRE(parameters > 0);
  // Arrays are padded to whole cache lines.
  const auto saved = [&, all = wide](StatePolicy state) { return all - state_bytes(state).first; };
  REQUIRE(saved(kBothNarrow) <= 4 * parameters);
  REQUIRE(saved(kBothNarrow) > 4 * parameters * 9 / 10);
  REQUIRE(saved({.second_moment = DType::kBF16}) <= 2 * parameters);
  REQUIRE(saved({.second_moment = DType::kBF16}) > 2 * parameters * 9 / 10);
}

}  // namespace
}  // namespace tessera
