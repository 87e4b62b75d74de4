// SPDX-License-Identifier: Apache-2.0
// Evaluation gives the same metrics as a plain computation from logits, for any batch size, number
// of processes and mesh: by dataset, by source and by tag, and for user-defined metrics.
#include "tasks/run/eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>
#include <span>
#include <thread>

#include "core/base/error.h"
#include "layers/models/language_model.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"
#include "tests/tasks/run/eval/tiny_mixture.h"

namespace tessera {
namespace {

using Metrics = std::map<std::string, double>;

// An example that a Collector received, in any process of the test.
struct Seen {
  int64_t number = 0;
  std::string source;
  std::vector<int32_t> labels;
  double log_likelihood = 0.0;
  std::vector<float> log_probs;
};
std::mutex seen_mutex;
std::vector<std::vector<Seen>> seen;  // One list per evaluation.

}  // namespace

class Collector final : public ScoreMetric {
 public:
  struct HParams {
    using Instance = Collector;
    static constexpr std::string_view kName = "Collector";
    bool breaks_its_word = false;
    FIELDS(breaks_its_word)
  };
  explicit Collector(const HParams& p) : p_(p) {}
  std::vector<std::string> names() const override { return {"examples", "nats"}; }
  void add(const ScoredExample& example) override {
    const HostArray& labels = example.row.at("labels");
    CHECK(labels.axes == std::vector<std::string>{"seq"});  // Not REQUIRE: several threads.
    examples_.push_back({example.number,
                         std::string(example.source),
                         {labels.data<int32_t>(), labels.data<int32_t>() + labels.shape[0]},
                         example.log_likelihood(),
                         {example.log_probs.begin(), example.log_probs.end()}});
  }
  Metrics values() const override {
    double nats = 0.0;
    for (const Seen& example : examples_) nats -= example.log_likelihood;
    const std::lock_guard lock(seen_mutex);
    seen.push_back(examples_);
    if (p_.breaks_its_word) return {{"examples", 1.0}};
    return {{"examples", static_cast<double>(examples_.size())}, {"nats", nats}};
  }

 private:
  HParams p_;
  std::vector<Seen> examples_;
};
const TemplateRegistrar<ScoreMetric, Collector> kRegister;

namespace {

ExperimentConfig mixture_config(int64_t batch_size, const std::vector<int64_t>& mesh = {1, 1, 1}) {
  ExperimentConfig config = tiny_config(2);
  config.mesh.ici_mesh_shape = mesh;
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  config.eval_inputs = {{"mixture", TinyMixture::HParams{.global_batch_size = batch_size}}};
  config.eval.datasets["mixture"].score_metrics["collected"] = Collector::HParams{};
  config.eval.tags = {{"prose", {"mixture/books", "mixture/web"}}};
  return config;
}

// Evaluates freshly initialised weights.
Metrics evaluate(const ExperimentConfig& config, int64_t devices, ProcessGroup& processes,
                 int times = 1) {
  const TinyDevices owned(devices);
  Session session(config, {.devices = devices, .trains = false}, owned.in_order(), processes);
  initialise_state(session.executor(), session.task().model().parameters(), 7, 1);
  Metrics metrics;
  for (int i = 0; i < times; ++i) metrics = session.evaluation().run(processes).metrics;
  const std::vector<std::string> names = session.evaluation().metric_names();
  // Several threads call this, and Catch2's assertions are for one.
  CHECK(names.size() == metrics.size());
  for (const std::string& name : names) CHECK(metrics.count(name) == 1, "{}", name);
  return metrics;
}

Metrics evaluate(const ExperimentConfig& config, int64_t devices = 1) {
  ProcessGroup alone;
  return evaluate(config, devices, alone);
}

// The metrics that each process returns.
std::vector<Metrics> evaluate_in_processes(const ExperimentConfig& config, int count,
                                           int64_t devices) {
  const auto transports = make_loopback(count);
  std::vector<Metrics> metrics(static_cast<size_t>(count));
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < metrics.size(); ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup processes(transports[rank], std::chrono::seconds(60));
        metrics[rank] = evaluate(config, devices, processes);
      });
  }
  return metrics;
}

// Sums over labels with non-zero weight, from the logits of one row at a time.
struct Plain {
  double nats = 0.0, correct = 0.0, labels = 0.0, bytes = 0.0;
  void add(const Plain& other) {
    nats += other.nats;
    correct += other.correct;
    labels += other.labels;
    bytes += other.bytes;
  }
};

// Logits of single rows, from a separate program with the same initial weights.
class RowLogits {
 public:
  RowLogits(const ExperimentConfig& config, const TinyMixture& input)
      : task_(config.task.instantiate()), executor_(*devices_.in_order()[0]) {
    const Mesh mesh = make_mesh(config.mesh, {1});
    const TraceSetting setting{mesh, make_rules(config.rules), input.row(0)};
    CompileOptions options;
    options.mesh = mesh;
    program_ = executor_.add_program(task_->logits_graph(setting, Weights::kTrained), options);
    executor_.allocate();
    initialise_state(executor_, task_->model().parameters(), 7, 1);
  }
  // Returns the logits of a row, f32["seq vocab"].
  std::vector<float> of(const Batch& row) {
    write_batch(executor_, program_, row);
    executor_.run(program_);
    std::vector<float> logits(static_cast<size_t>(TinyMixture::kSeqLen * kVocab));
    executor_.read_output(program_, names::kLogits, std::as_writable_bytes(std::span(logits)));
    return logits;
  }
  static constexpr int64_t kVocab = 24;

 private:
  std::unique_ptr<BaseTask> task_;
  TinyDevices devices_;
  Executor executor_;
  int program_ = 0;
};

Plain score_row(RowLogits& logits, const TinyMixture& input, int64_t number) {
  const Batch row = input.row(number);
  const std::vector<float> all = logits.of(row);
  Plain plain{.bytes = TinyMixture::bytes_of(number)};
  for (int64_t i = 0; i < TinyMixture::kSeqLen; ++i) {
    if (row.at("weights").data<float>()[i] == 0.0f) continue;
    const auto begin = all.begin() + i * RowLogits::kVocab, end = begin + RowLogits::kVocab;
    const float score = begin[row.at("labels").data<int32_t>()[i]];
    double sum = 0.0;
    for (auto each = begin; each != end; ++each) sum += std::exp(static_cast<double>(*each));
    plain.nats += std::log(sum) - score;
    plain.correct += *std::max_element(begin, end) == score ? 1.0 : 0.0;
    plain.labels += 1.0;
  }
  return plain;
}

std::map<std::string, Plain> plain_scores() {
  const TinyMixture input({});
  RowLogits logits(mixture_config(4), input);
  std::map<std::string, Plain> scores;
  for (int64_t row = 0; row < TinyMixture::HParams{}.num_rows; ++row) {
    const Plain plain = score_row(logits, input, row);
    scores["mixture"].add(plain);
    const std::string source = TinyMixture::kSources[TinyMixture::source_of(row)];
    scores["mixture/" + source].add(plain);
    if (source != "code") scores["tag/prose"].add(plain);
  }
  return scores;
}

void require_plain(const Metrics& metrics, const std::map<std::string, Plain>& plain) {
  for (const auto& [group, scores] : plain) {
    INFO(group);
    const auto value = [&](const char* name) { return metrics.at("eval/" + group + "/" + name); };
    // Evaluation sums sixteen terms a row in f32; the expected values are computed in f64.
    REQUIRE(value("log_pplx") == Approx(scores.nats / scores.labels).epsilon(1e-5));
    REQUIRE(value("loss") == Approx(scores.nats / scores.labels).epsilon(1e-5));
    REQUIRE(value("perplexity") == Approx(std::exp(scores.nats / scores.labels)).epsilon(1e-4));
    REQUIRE(value("bits_per_byte") ==
            Approx(scores.nats / std::numbers::ln2 / scores.bytes).epsilon(1e-5));
    REQUIRE(value("accuracy") == scores.correct / scores.labels);
    REQUIRE(value("weight") == scores.labels);
  }
}

TEST_CASE("metrics match a computation from logits: for the whole set, by source and by tag") {
  const std::map<std::string, Plain> plain = plain_scores();
  const Metrics metrics = evaluate(mixture_config(4));
  require_plain(metrics, plain);
  // The macro mean weights sources equally.
  const auto mean = [&](const std::string& group) {
    return plain.at(group).nats / plain.at(group).labels;
  };
  REQUIRE(metrics.at("eval/tag/prose/macro_log_pplx") ==
          Approx((mean("mixture/books") + mean("mixture/web")) / 2).epsilon(1e-5));
  REQUIRE(metrics.at("eval/mixture/collected/examples") == 11.0);
  REQUIRE(metrics.at("eval/mixture/collected/nats") ==
          Approx(plain.at("mixture").nats).epsilon(1e-5));
}

TEST_CASE("an example has the log-probability of each of its labels, on any mesh") {
  std::vector<float> expected;
  for (const std::vector<int64_t>& mesh : {std::vector<int64_t>{1, 1, 1}, {1, 2, 2}}) {
    seen.clear();
    evaluate(mixture_config(4, mesh), mesh[1] * mesh[2]);
    std::vector<float> all;
    for (const Seen& example : seen.at(0)) {
      REQUIRE(example.log_probs.size() == example.labels.size());
      double sum = 0.0;
      for (const float each : example.log_probs) {
        REQUIRE(each <= 0.0f);
        sum += static_cast<double>(each);
      }
      REQUIRE(sum == Approx(example.log_likelihood).epsilon(1e-5));
      all.insert(all.end(), example.log_probs.begin(), example.log_probs.end());
    }
    if (expected.empty()) expected = all;
    REQUIRE(all.size() == expected.size());
    for (size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == Approx(expected[i]).margin(1e-4));
  }
}

TEST_CASE("metrics do not depend on the batch size, and padding has no weight") {
  const Metrics expected = evaluate(mixture_config(1));
  for (const int64_t batch_size : {2, 4, 8, 16}) {
    INFO("batches of " << batch_size);
    seen.clear();
    const Metrics metrics = evaluate(mixture_config(batch_size));
    REQUIRE(metrics.size() == expected.size());
    for (const auto& [name, value] : expected) {
      INFO(name);
      REQUIRE(metrics.at(name) == Approx(value).epsilon(1e-6));
    }
    REQUIRE(seen.size() == 1);
    REQUIRE(seen[0].size() == 11);
    for (int64_t i = 0; i < 11; ++i) {
      const Seen& example = seen[0][static_cast<size_t>(i)];
      REQUIRE(example.number == i);
      REQUIRE(example.source == TinyMixture::kSources[TinyMixture::source_of(i)]);
      const Batch row = TinyMixture({}).row(i);
      const auto* labels = row.at("labels").data<int32_t>();
      REQUIRE(std::equal(example.labels.begin(), example.labels.end(), labels,
                         labels + TinyMixture::kSeqLen));
    }
  }
}

TEST_CASE("a loss in chunks of tokens gives the metrics of the whole loss") {
  ExperimentConfig config = mixture_config(4);
  const Metrics expected = evaluate(config);
  task_of(config)
      .model.as<LanguageModel::HParams>()
      .lm_tpl.as<TransformerLm::HParams>()
      .softmax_tpl.as<SharedEmbeddingSoftmax::HParams>()
      .loss.chunk_tokens = 10;
  const Metrics metrics = evaluate(config);
  REQUIRE(metrics.size() == expected.size());
  for (const auto& [name, value] : expected) {
    INFO(name);
    REQUIRE(metrics.at(name) == Approx(value).epsilon(1e-6));
  }
}

TEST_CASE("an example of sample weight 0 has no weight") {
  ExperimentConfig config = mixture_config(4), loud = mixture_config(4);
  auto& input = config.eval_inputs["mixture"].as<TinyMixture::HParams>();
  input.num_rows = 11 + 3;
  input.num_silent = 3;
  const Metrics expected = evaluate(loud);
  const Metrics metrics = evaluate(config);
  REQUIRE(metrics.size() == expected.size());
  for (const auto& [name, value] : expected) {
    INFO(name);
    REQUIRE(metrics.at(name) == Approx(value).epsilon(1e-6));
  }
  // The totals of the model equal the sums over its rows.
  const TinyDevices devices;
  ProcessGroup alone;
  Session session(config, {.trains = false}, devices.in_order(), alone);
  initialise_state(session.executor(), session.task().model().parameters(), 7, 1);
  EvalProgram program(session.executor(), 0);
  TinyMixture rows({.global_batch_size = 4, .num_rows = 5, .num_silent = 3});
  const ScoredBatch scored = program.run(*rows.get_next());
  REQUIRE(scored.rows.size() == 3);
  for (const auto& [name, of_rows] : scored.rows) {
    INFO(name);
    double sum = 0.0, weight = 0.0;
    for (const ExampleScore& row : of_rows) {
      sum += row.sum;
      weight += row.weight;
    }
    REQUIRE(scored.totals.means().at(name) == Approx(sum / weight).epsilon(1e-6));
    REQUIRE(scored.totals.weight(name) == weight);
    REQUIRE(of_rows[1].weight > 0.0);
    REQUIRE(of_rows[2].weight == 0.0);
  }
}

TEST_CASE("any mesh and number of processes gives the metrics of one device in every process") {
  const Metrics expected = evaluate(mixture_config(8));
  const auto require_expected = [&](const Metrics& metrics) {
    REQUIRE(metrics.size() == expected.size());
    for (const auto& [name, value] : expected) {
      INFO(name);
      REQUIRE(metrics.at(name) == Approx(value).epsilon(1e-5));
    }
  };
  for (const std::vector<int64_t>& mesh :
       {std::vector<int64_t>{1, 4, 1}, {1, 1, 2}, {1, 2, 2}, {2, 2, 1}})
    require_expected(evaluate(mixture_config(8, mesh), mesh[0] * mesh[1] * mesh[2]));
  for (const int count : {2, 4}) {
    INFO(count << " processes");
    seen.clear();
    const auto all = evaluate_in_processes(mixture_config(8, {1, 2, 2}), count, 4 / count);
    for (const Metrics& metrics : all) {
      require_expected(metrics);
      REQUIRE(metrics == all[0]);
    }
    REQUIRE(seen.size() == static_cast<size_t>(count));
    for (const auto& examples : seen) {
      REQUIRE(examples.size() == 11);
      for (size_t i = 0; i < examples.size(); ++i) REQUIRE(examples[i].labels == seen[0][i].labels);
    }
  }
}

TEST_CASE("the first N batches are the same in each evaluation; rolling N continue") {
  ExperimentConfig config = mixture_config(2);
  EvalHParams& p = config.eval.datasets["mixture"];
  p.num_batches = 2;
  ProcessGroup alone;
  seen.clear();
  evaluate(config, 1, alone, 3);
  const auto numbers = [](const std::vector<Seen>& examples) {
    std::vector<std::vector<int32_t>> labels;
    for (const Seen& example : examples) labels.push_back(example.labels);
    return labels;
  };
  REQUIRE(seen.size() == 3);
  REQUIRE(seen[0].size() == 4);
  REQUIRE(numbers(seen[0]) == numbers(seen[2]));

  p.reset_for_eval = false;
  auto& input = config.eval_inputs["mixture"].as<TinyMixture::HParams>();
  input.repeat = true;
  input.num_rows = 12;
  seen.clear();
  evaluate(config, 1, alone, 4);
  REQUIRE(seen.size() == 4);
  REQUIRE(numbers(seen[0]) != numbers(seen[1]));
  REQUIRE(numbers(seen[1]) != numbers(seen[2]));
  REQUIRE(numbers(seen[0]) == numbers(seen[3]));  // Twelve rows later.
}

std::string message_of(const ExperimentConfig& config) {
  return error_of([&] { evaluate(config); });
}

TEST_CASE("invalid evaluation settings are errors that say how to fix them") {
  using Catch::Contains;
  ExperimentConfig config = mixture_config(4);
  auto& input = config.eval_inputs["mixture"].as<TinyMixture::HParams>();
  EvalHParams& p = config.eval.datasets["mixture"];
  SECTION("nothing to score") {
    input.has_weights = false;
    REQUIRE_THAT(message_of(config),
                 Contains("'mixture' has nothing to score: no label has a weight above 0"));
  }
  SECTION("rolling over a finite dataset") {
    p.reset_for_eval = false;
    p.num_batches = 2;
    REQUIRE_THAT(message_of(config),
                 Contains("eval.datasets.mixture") && Contains("but its input ends; set"));
  }
  SECTION("rolling over the whole dataset") {
    p.reset_for_eval = false;
    input.repeat = true;
    REQUIRE_THAT(message_of(config), Contains("needs a num_batches of at least 1; got -1"));
  }
  SECTION("the whole of an infinite dataset") {
    input.repeat = true;
    REQUIRE_THAT(message_of(config), Contains("its input repeats without end; set num_batches"));
  }
  SECTION("no batches") {
    p.num_batches = 0;
    REQUIRE_THAT(message_of(config),
                 Contains("eval.datasets.mixture.num_batches is 0, expected at least 1, or -1"));
  }
  SECTION("options of an unknown dataset") {
    config.eval.datasets["mixtur"] = {};
    REQUIRE_THAT(message_of(config), Contains("did you mean 'mixture'?"));
  }
  SECTION("a tag of an unknown dataset") {
    config.eval.tags["code"] = {"mixture/cod"};
    REQUIRE_THAT(message_of(config), Contains("eval.tags.code") &&
                                         Contains("there is no dataset 'mixture/cod'; did you "
                                                  "mean 'mixture/code'?"));
  }
  SECTION("a metric named like a source") {
    p.score_metrics["code"] = Collector::HParams{};
    REQUIRE_THAT(message_of(config), Contains("a source of the dataset has the same name"));
  }
  SECTION("a metric that omits a value it declares") {
    p.score_metrics["collected"] = Collector::HParams{.breaks_its_word = true};
    REQUIRE_THAT(message_of(config),
                 Contains("score_metrics.collected") && Contains("values() lacks 'nats'"));
  }
  SECTION("names that are invalid in paths") {
    config.eval_inputs["a/b"] = config.eval_inputs["mixture"];
    REQUIRE_THAT(message_of(config), Contains("'a/b' is not a valid dataset name"));
  }
}

TEST_CASE("if num_batches exceeds the dataset, all batches are scored with one warning") {
  ExperimentConfig config = mixture_config(4);
  config.eval.datasets["mixture"].num_batches = 50;
  const TinyDevices devices;
  ProcessGroup alone;
  Session session(config, {.trains = false}, devices.in_order(), alone);
  initialise_state(session.executor(), session.task().model().parameters(), 7, 1);
  const EvalReport first = session.evaluation().run(alone);
  REQUIRE(first.metrics.at("eval/mixture/collected/examples") == 11.0);
  REQUIRE(first.remarks ==
          std::vector<std::string>{"eval.datasets.mixture: num_batches is 50, but the dataset ends "
                                   "after 3; all of it is scored"});
  REQUIRE(session.evaluation().run(alone).remarks.empty());
}

}  // namespace
}  // namespace tessera
