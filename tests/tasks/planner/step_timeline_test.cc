// SPDX-License-Identifier: Apache-2.0
// The timeline of planned steps: its memory is the planned one, its streams do one thing at a time,
// and its trace and drawing are well-formed and have all of it.
#include "tasks/planner/step_timeline.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>

#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/planner/plan.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

struct Case {
  std::string name;
  std::vector<int64_t> shape = {1, 1, 1};
  Strategy strategy = Strategy::kFullySharded;
  int64_t num_microbatches = 1;
  std::string remat_policy = "save_nothing";
};

// A step of four layers. The memory of its stages is given beside the plan.
struct Predicted {
  Plan plan;
  std::vector<int64_t> peaks;
};

Predicted predicted(const Case& of) {
  const TransformerLm::HParams lm{.vocab_size = 512,
                                  .model_dims = 128,
                                  .num_layers = 4,
                                  .num_heads = 4,
                                  .hidden_dims = 512,
                                  .stacked_transformer_tpl = Repeated::HParams{}};
  MeshConfig mesh{.ici_mesh_shape = of.shape};
  mesh.axis_names = strategy_axes(of.strategy, std::move(mesh.axis_names));
  const ExperimentConfig config{
      .mesh = mesh,
      .rules = strategy_rules(of.strategy),
      .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = DType::kBF16},
                                  .model = LanguageModel::HParams{.lm_tpl = lm},
                                  .train = {.num_train_steps = 1,
                                            .num_microbatches = of.num_microbatches,
                                            .remat_policy = of.remat_policy,
                                            .save_interval_steps = 0,
                                            .eval_interval_steps = 0}},
      .input = SyntheticInput::HParams{.global_batch_size = 32, .seq_len = 128}};
  const TemporaryDirectory directory;
  const std::unique_ptr<Device> device = make_planned_device(hardware_named("h200"));
  ProcessGroup alone;
  Session session(config, {.run_directory = directory.path(), .allocates = false}, {device.get()},
                  alone);
  const CompiledStep step = session.compiled_step();
  Predicted result{make_plan(step), {}};
  for (const StagePlan& stage : step.stages) result.peaks.push_back(stage.plan->use.peak);
  result.plan.prediction = predict(step, hardware_named("h200"));
  return result;
}

const std::vector<Case> kCases = {
    {.name = "one device"},
    {.name = "microbatches", .num_microbatches = 4, .remat_policy = "save_everything"},
    {.name = "FSDP", .shape = {1, 4, 1}},
    {.name = "pipeline",
     .shape = {4, 1, 1, 1},
     .strategy = Strategy::kPipeline,
     .num_microbatches = 8},
    {.name = "FSDP in a pipeline",
     .shape = {2, 1, 2, 1},
     .strategy = Strategy::kFullyShardedPipeline,
     .num_microbatches = 4}};

TEST_CASE("the most memory on a timeline is the planned peak, to the byte") {
  for (const Case& each : kCases) {
    CAPTURE(each.name);
    const Predicted result = predicted(each);
    const Prediction& prediction = *result.plan.prediction;
    REQUIRE(prediction.timeline->stages.size() == result.peaks.size());
    REQUIRE(std::ranges::max(result.peaks) == result.plan.peak);
    for (size_t i = 0; i < result.peaks.size(); ++i) {
      const StageTimeline& stage = prediction.timeline->stages[i];
      int64_t most = 0, least = result.peaks[i];
      for (const MemoryAt& memory : stage.memory) {
        REQUIRE(memory.gaps >= 0);
        most = std::max(most, memory.bytes());
        least = std::min(least, memory.used);
      }
      REQUIRE(most == result.peaks[i]);
      REQUIRE(prediction.stages[i].peak == result.peaks[i]);
      REQUIRE(least < most);
      REQUIRE(least >= result.plan.memory.front().bytes / 4);
    }
  }
}

TEST_CASE("each stream does one thing at a time, and what a stage does adds up to the step") {
  for (const Case& each : kCases) {
    CAPTURE(each.name);
    const Prediction prediction = *predicted(each).plan.prediction;
    for (const StageTimeline& stage : prediction.timeline->stages) {
      double kernels = 0.0, links = 0.0;
      for (const TimedLaunch& launch : stage.launches) {
        const bool is_collective = stage.prices[launch.price].op->op_class == OpClass::kCollective;
        double& free = is_collective && launch.kind != LaunchKind::kWait ? links : kernels;
        if (launch.span.end == launch.span.begin) continue;
        REQUIRE(launch.span.begin >= free);
        free = launch.span.end;
      }
      REQUIRE(std::max(kernels, links) <= prediction.step_seconds);
    }
    for (const StageTimes& times : prediction.stages)
      REQUIRE(times.kernels + times.exposed + times.idle + times.input ==
              Approx(prediction.step_seconds));
    REQUIRE((prediction.bubble_share() > 0.05) == (prediction.stages.size() > 1));
  }
}

TEST_CASE("a timeline's trace has a process for each stage, all launches and the planned peak") {
  const Predicted result = predicted(kCases[4]);
  const StepTimeline& timeline = *result.plan.prediction->timeline;
  const Json trace = parse_json(timeline_trace(timeline), "timeline.json");
  std::map<int64_t, int64_t> peaks;
  std::map<std::pair<int64_t, int64_t>, double> ends;  // Last end in each thread, microseconds.
  std::map<std::string, int> names;
  size_t slices = 0;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    const std::string& kind = event.at("ph").as_string();
    const int64_t process = event.at("pid").as_integer();
    if (kind == "M") {
      ++names[event.at("args").at("name").as_string()];
    } else if (kind == "C") {
      int64_t& peak = peaks[process];
      peak = std::max(peak, event.at("args").at("used").as_integer() +
                                event.at("args").at("gaps").as_integer());
    } else {
      ++slices;
      double& end = ends[{process, event.at("tid").as_integer()}];
      REQUIRE(event.at("ts").as_number() >= end - 1e-6);
      end = event.at("ts").as_number() + event.at("dur").as_number();
      REQUIRE(end <= timeline.end * 1e6 + 1e-6);
    }
  }
  REQUIRE(names == std::map<std::string, int>{{"stage 0", 1},
                                              {"stage 1", 1},
                                              {"kernels", 2},
                                              {"collectives within slices", 2},
                                              {"collectives between slices", 2}});
  REQUIRE(peaks == std::map<int64_t, int64_t>{{1, result.peaks[0]}, {2, result.peaks[1]}});
  size_t expected = 0;
  for (const StageTimeline& stage : timeline.stages) {
    expected += 1;  // The input.
    for (const TimedLaunch& launch : stage.launches)
      if (launch.span.end > launch.span.begin) ++expected;
  }
  REQUIRE(slices == expected);
}

TEST_CASE("a timeline's drawing is well-formed, and has colours for dark pages") {
  for (const Case& each : kCases) {
    CAPTURE(each.name);
    const Plan plan = predicted(each).plan;
    const std::string svg = timeline_svg(*plan.prediction->timeline);
    std::istringstream stream(svg);
    boost::property_tree::ptree tree;
    REQUIRE_NOTHROW(boost::property_tree::read_xml(stream, tree));
    size_t areas = 0;
    for (const auto& [name, child] : tree.get_child("svg"))
      if (name == "path" && child.get<std::string>("<xmlattr>.class") == "memory") ++areas;
    REQUIRE(areas == plan.prediction->timeline->stages.size());
    REQUIRE_THAT(svg, Catch::Contains("prefers-color-scheme:dark") &&
                          Catch::Contains("class=\"w0\" d=") && Catch::Contains(">backward<") &&
                          !Catch::Contains("nan") && !Catch::Contains("inf"));
    const bool communicates = each.name != "one device" && each.name != "microbatches";
    REQUIRE((svg.find("class=\"w5\" d=") != std::string::npos) == communicates);
  }
}

// The heights that a path of the drawing takes, in order, without repetitions.
std::vector<double> levels(const std::string& svg, const std::string& style) {
  std::vector<double> found;
  const std::string open = "<path class=\"" + style + "\" d=\"";
  const size_t begin = svg.find(open) + open.size();
  const std::string path = svg.substr(begin, svg.find('"', begin) - begin);
  for (size_t at = path.find('L'); at != std::string::npos; at = path.find('L', at + 1)) {
    const double level = std::stod(path.substr(path.find(' ', at)));
    if (found.empty() || found.back() != level) found.push_back(level);
  }
  return found;
}

TEST_CASE("a timeline's drawing shows the memory in use, and apart from it the gaps") {
  const OpDef op{.name = "op"};
  StageTimeline stage{.prices = {{.op = &op, .count = 1}}};
  for (int i = 0; i < 4; ++i)
    stage.launches.push_back({.reached = 0.25 * i, .span = {0.25 * i, 0.25 * (i + 1)}});
  stage.memory = {{100, 0}, {300, 100}, {50, 350}, {200, 200}};
  const std::string svg = timeline_svg({.title = "test", .end = 1.0, .stages = {stage}});
  const std::vector<double> used = levels(svg, "memory"), with_gaps = levels(svg, "gaps");
  REQUIRE(used.size() == 4);
  REQUIRE(with_gaps.size() == 2);
  const double whole = used[0] - with_gaps[1], bottom = used[0] + whole / 3.0;
  REQUIRE(with_gaps[0] == used[0]);
  REQUIRE(bottom - used[1] == Approx(0.75 * (bottom - with_gaps[1])).margin(0.2));
  REQUIRE(bottom - used[2] == Approx(0.125 * (bottom - with_gaps[1])).margin(0.2));
}

TEST_CASE("a plan's files have its timeline, and its JSON what each stage does") {
  const TemporaryDirectory folder;
  Plan plan = predicted(kCases[3]).plan;
  write_plan_files(folder.path(), plan);
  REQUIRE(read_file(folder / "timeline.json") == timeline_trace(*plan.prediction->timeline));
  REQUIRE(read_file(folder / "timeline.svg") == timeline_svg(*plan.prediction->timeline));
  const Json json = parse_json(read_file(folder / "plan.json"), "plan.json");
  const Json& prediction = json.at("prediction");
  REQUIRE(prediction.at("stages").as_array().size() == 4);
  REQUIRE(prediction.at("bubble_share").as_number() == Approx(plan.prediction->bubble_share()));
  int64_t most = 0;
  for (const Json& point : prediction.at("memory_over_time").as_array()) {
    most = std::max(most, point.as_array()[2].as_integer());
    REQUIRE(point.as_array()[1].as_integer() <= point.as_array()[2].as_integer());
  }
  REQUIRE(most == plan.peak);
  const std::string text = plan_text(plan);
  REQUIRE_THAT(text, Catch::Contains("stages, in percent of the step; bubbles are") &&
                         Catch::Contains("bubbles          of stage") &&
                         Catch::Contains(std::to_string(plan.peak) + " bytes after"));
  std::istringstream lines(text.substr(text.find("predicted for")));
  for (std::string line; std::getline(lines, line);) REQUIRE(line.size() <= 100);
}

}  // namespace
}  // namespace tessera
