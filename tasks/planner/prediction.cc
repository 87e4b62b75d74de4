// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prediction.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

// Numbers what stages do together, with the same numbers on all of them: each transfer between two
// stages, and each collective along the axis of the stages, in their order (core/ops/send.h).
class RendezvousNumbers {
 public:
  explicit RendezvousNumbers(std::span<const StagePlan> stages) {
    if (stages.size() < 2) return;  // One device stands for all.
    axes_ = transfer_axes(*stages.front().plan->graph);
  }

  void begin_stage(int64_t stage) {
    stage_ = stage;
    for (auto& [stages, series] : series_) series.reached = 0;
    series_of_.clear();
  }
  // Returns -1 if only devices with the same program take part. `price` is that of the node in this
  // stage.
  int64_t number_of(const Node& collective, size_t price) {
    if (price >= series_of_.size()) series_of_.resize(price + 1);
    std::optional<Series*>& known = series_of_[price];
    if (!known) known = series_between(stages_of(collective));
    if (*known == nullptr) return -1;
    Series& series = **known;
    if (series.reached == series.numbers.size()) series.numbers.push_back(count_++);
    return series.numbers[series.reached++];
  }

 private:
  // What one set of stages does together, in order.
  struct Series {
    std::vector<int64_t> numbers;
    size_t reached = 0;  // How many the current stage has reached.
  };

  Series* series_between(std::pair<int64_t, int64_t> stages) {
    return stages == kNobody ? nullptr : &series_[stages];
  }

  static constexpr std::pair<int64_t, int64_t> kAllStages{-1, -1}, kNobody{-2, -2};

  std::pair<int64_t, int64_t> stages_of(const Node& collective) const {
    if (axes_.empty() || !communicates_along(axes_, collective)) return kNobody;
    if (!is_transfer(collective)) return kAllStages;
    return std::minmax(stage_, collective.attributes.get(key::kPeer));
  }

  std::vector<std::string> axes_;
  int64_t stage_ = 0;
  std::map<std::pair<int64_t, int64_t>, Series> series_;
  std::vector<std::optional<Series*>> series_of_;  // By price, of the current stage.
  int64_t count_ = 0;
};

// Seconds before the first kernel, in which the device's part of a batch is copied.
double input_seconds(const StepProgram& step, const Hardware& hardware) {
  if (!hardware.host) return 0.0;
  int64_t bytes = 0;
  for (const Placement& input : step.inputs)
    if (input.kind == InputKind::kBatch) bytes += input.type.bytes();
  if (bytes == 0) return 0.0;
  return static_cast<double>(bytes) / hardware.host->bandwidth + hardware.host->latency;
}

// Adds what is simulated. Returns the timeline that will hold the result, without times.
StageTimeline priced_stage(const StagePlan& stage, LaunchPrices prices,
                           RendezvousNumbers& rendezvous, SimulatedProgram& program) {
  const StepProgram& step = *stage.plan;
  StageTimeline timeline{.stage = stage.stage, .memory = memory_curve(step), .tasks = step.tasks};
  timeline.launches.reserve(step.launches.size());
  program.launches.reserve(step.launches.size());
  rendezvous.begin_stage(stage.stage);
  for (const Launch& launch : step.launches) {
    const size_t price = prices.price_of(launch);
    const PricedLaunch& cost = prices.prices()[price];
    SimulatedLaunch simulated{.kind = launch.kind,
                              .is_collective = cost.op->op_class == OpClass::kCollective};
    if (launch.kind == LaunchKind::kWait) {
      simulated.waits_for = static_cast<int64_t>(launch.waits_for.index());
    } else {
      simulated.seconds = cost.cost.seconds;
      if (simulated.is_collective)
        simulated.rendezvous = rendezvous.number_of(launch.graph->node(launch.node), price);
      ++prices.prices()[price].count;
    }
    program.launches.push_back(simulated);
    timeline.launches.push_back({.price = price, .kind = launch.kind, .task = launch.task});
  }
  timeline.prices = std::move(prices.prices());
  return timeline;
}

// Adds when launches run, and what each adds to the step.
void add_times(StageTimeline& timeline, const SimulatedProgram& program,
               const SimulatedTimes& times) {
  for (size_t i = 0; i < timeline.launches.size(); ++i) {
    TimedLaunch& launch = timeline.launches[i];
    launch.reached = times.reached[i];
    launch.span = times.launches[i];
    if (!program.launches[i].is_collective)
      timeline.prices[launch.price].adds += program.launches[i].seconds;
  }
  timeline.stalls = stalls_of(program, times);
  for (const Stall& stall : timeline.stalls)
    timeline.prices[timeline.launches[stall.launch].price].adds += stall.exposed;
  timeline.kernels_end = times.kernels_end;
}

StageTimes times_of(const StageTimeline& stage, double input, double end) {
  StageTimes times{.stage = stage.stage, .input = input};
  for (const PricedLaunch& price : stage.prices)
    (price.op->op_class == OpClass::kCollective ? times.exposed : times.kernels) += price.adds;
  for (const Stall& stall : stage.stalls) times.idle += stall.idle;
  times.idle += end - stage.kernels_end;
  for (const MemoryAt& memory : stage.memory) times.peak = std::max(times.peak, memory.bytes());
  return times;
}

std::vector<ExposedLine> exposed_lines(const std::vector<StageTimeline>& stages) {
  std::map<std::string, ExposedLine> lines;
  const double share = 1.0 / static_cast<double>(stages.size());
  for (const StageTimeline& stage : stages) {
    for (const PricedLaunch& price : stage.prices) {
      if (price.op->op_class != OpClass::kCollective) continue;
      ExposedLine& line = lines[price.source];
      line.source = price.source;
      line.seconds += share * price.adds;
      line.communication += share * static_cast<double>(price.count) * price.cost.seconds;
    }
  }
  std::vector<ExposedLine> result;
  for (auto& [source, line] : lines)
    if (line.seconds > 0.0) result.push_back(std::move(line));
  std::ranges::stable_sort(result, std::greater<>(), &ExposedLine::seconds);
  return result;
}

// Seconds of the model's FLOPs at the peak, averaged over all stages.
double ideal_seconds(const std::vector<StageTimeline>& stages) {
  double ideal = 0.0;
  for (const StageTimeline& stage : stages)
    for (const PricedLaunch& price : stage.prices)
      ideal += price.ideal * static_cast<double>(price.count);
  return ideal / static_cast<double>(stages.size());
}

double share_of_step(const Prediction& prediction, double StageTimes::*part) {
  double sum = 0.0;
  for (const StageTimes& stage : prediction.stages) sum += stage.*part;
  const double all = prediction.step_seconds * static_cast<double>(prediction.stages.size());
  return all > 0.0 ? sum / all : 0.0;
}

}  // namespace

Prediction predict(const CompiledStep& step, const Hardware& hardware,
                   std::optional<int64_t> num_train_steps) {
  const std::vector<StagePlan>& stages = step.stages;
  CHECK(!stages.empty(), "a prediction of no program");
  RendezvousNumbers rendezvous(stages);
  const int64_t devices = step.mesh.num_devices();
  StepTimeline timeline{.title = devices > 1 ? fmt::format("{} x {}", devices, hardware.title)
                                             : hardware.title};
  for (const StagePlan& stage : stages)
    timeline.input = std::max(timeline.input, input_seconds(*stage.plan, hardware));
  std::vector<SimulatedProgram> programs(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    programs[i].begin = timeline.input;
    timeline.stages.push_back(
        priced_stage(stages[i], LaunchPrices(step.mesh, hardware), rendezvous, programs[i]));
  }
  const std::vector<SimulatedTimes> times = simulate(programs);
  for (size_t i = 0; i < times.size(); ++i) {
    add_times(timeline.stages[i], programs[i], times[i]);
    timeline.end = std::max(timeline.end, times[i].end);
  }

  Prediction prediction{.hardware = hardware,
                        .step_seconds = timeline.end,
                        .tokens_per_step = step.tokens,
                        .num_train_steps = num_train_steps};
  for (const StageTimeline& stage : timeline.stages)
    prediction.stages.push_back(times_of(stage, timeline.input, timeline.end));
  const auto busiest = std::ranges::max_element(prediction.stages, {}, &StageTimes::kernels);
  prediction.launches =
      timeline.stages[static_cast<size_t>(busiest - prediction.stages.begin())].prices;
  prediction.exposed = exposed_lines(timeline.stages);
  if (timeline.end > 0.0) {
    prediction.tokens_per_second = static_cast<double>(step.tokens) / timeline.end;
    prediction.mfu = ideal_seconds(timeline.stages) / timeline.end;
  }
  prediction.timeline = std::make_shared<const StepTimeline>(std::move(timeline));
  return prediction;
}

double Prediction::bubble_share() const { return share_of_step(*this, &StageTimes::idle); }
double Prediction::exposed_share() const { return share_of_step(*this, &StageTimes::exposed); }

double Prediction::measured_share() const {
  double all = 0.0, measured = 0.0;
  for (const PricedLaunch& launch : launches) {
    const double seconds = static_cast<double>(launch.count) * launch.cost.seconds;
    all += seconds;
    if (launch.is_measured) measured += seconds;
  }
  return all > 0.0 ? measured / all : 0.0;
}

std::optional<double> Prediction::cost_per_billion_tokens(int64_t devices) const {
  if (!hardware.price_per_hour || tokens_per_second <= 0.0) return std::nullopt;
  return 1e9 / tokens_per_second / 3600.0 * static_cast<double>(devices) * *hardware.price_per_hour;
}

}  // namespace tessera
