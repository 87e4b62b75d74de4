// SPDX-License-Identifier: Apache-2.0
// An optimizer, a loss, inputs, a map and a format of documents of one's own, as in
// docs/own_parts.md.
#include <filesystem>
#include <sstream>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/environment.h"
#include "core/io/file.h"
#include "core/ops/elementwise.h"
#include "inputs/checked_input.h"
#include "inputs/flat_tokens/text_input.h"
#include "inputs/indexed_input.h"
#include "inputs/readers/document_map.h"
#include "inputs/readers/piece_documents.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "inputs/wrapped_input.h"
#include "layers/models/language_model.h"
#include "tasks/task/learner/base_optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/optimizer_trial.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

// In a plugin, the project's name.
namespace own_parts {

using namespace tessera;

// Chen et al., Symbolic Discovery of Optimization Algorithms (2023).
class Lion final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Lion;
    static constexpr std::string_view kName = "own_parts.Lion";
    double learning_rate = 1e-4;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9, beta2 = 0.99;
    double weight_decay = 0.0;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(weight_decay, kNotNegative))
  };
  explicit Lion(const HParams& p) : BaseOptimizer(p), p_(p) {}

  std::vector<Slot> slots(const StoredWeight& weight) const override {
    Type m = weight.type;  // It has the parameter's axes and layout.
    m.dtype = DType::kF32;
    return {{"m", m}};
  }

  Updated update(const UpdateInputs& inputs) const override {
    const Tensor gradient = scaled_gradient(inputs), m = old_state(inputs, 0);
    const Tensor change = sign(m * p_.beta1 + gradient * (1.0 - p_.beta1));
    const Tensor next = m * p_.beta2 + gradient * (1.0 - p_.beta2);
    return {decayed_step(inputs, change), {stored_state(inputs, 0, next, Rounding::kNearest, {})}};
  }

 private:
  HParams p_;
};
const TemplateRegistrar<BaseOptimizer, Lion> kRegisterLion;

// Lin et al., Focal Loss (2017): tokens that the model predicts well count less.
class FocalLm final : public BaseModel {
 public:
  struct HParams {
    using Instance = FocalLm;
    static constexpr std::string_view kName = "own_parts.FocalLm";
    Template<TransformerLm> lm_tpl = TransformerLm::HParams{};
    double focus = 1.0;
    FIELDS(lm_tpl, About(focus, "0: cross-entropy, 1: times (1 - p)²", kShare))
  };
  explicit FocalLm(const HParams& p) : focus_(p.focus), lm_(child("lm", p.lm_tpl)) {}

 private:
  ModelOutput fprop(const Features& features) const override {
    CrossEntropy scores = lm_->loss(features);  // f32["batch seq"]: -log p of each label.
    const Tensor focal = square(1.0 - exp(-scores.loss));
    scores.loss = scores.loss * (focal * focus_ + (1.0 - focus_));
    return weighted_output(scores, features.find("weights"));
  }
  Tensor fprop_logits(const Features& features) const override { return lm_->logits(features); }
  Tensor fprop_next_logits(const Features& features) const override {
    return lm_->next_logits(features);
  }

  double focus_;
  ChildLayer<TransformerLm> lm_;
};
const TemplateRegistrar<BaseModel, FocalLm> kRegisterFocalLm;

// A question, a tab and its answer on each line of a file. Only answers are scored.
class Pairs final : public IndexedInput {
 public:
  struct HParams {
    using Instance = Pairs;
    static constexpr std::string_view kName = "own_parts.Pairs";
    Required<std::string> path;
    Required<int64_t> global_batch_size;
    int64_t seq_len = 64;
    int64_t seed = 1;
    bool repeat = true;  // false: once, for evaluation.
    FIELDS(path, About(global_batch_size, kSize), About(seq_len, kSize), seed, repeat)
  };
  explicit Pairs(const HParams& p)
      : IndexedInput({.name = "pairs",
                      .global_batch_size = p.global_batch_size.get(),
                      .seq_len = p.seq_len,
                      .seed = static_cast<uint64_t>(p.seed),
                      .shuffle = p.repeat ? Shuffle::kFull : Shuffle::kNone,
                      .repeat = p.repeat}),
        path_(user_path(p.path.get(), "Pairs.path")) {}

  int64_t vocab_size() const override { return bytes_->vocab_size(); }
  const Tokenizer* tokenizer() const override { return bytes_.get(); }

 private:
  // Called once, in each process, before the first batch.
  void open(const Infeed&) override {
    const std::string text = read_file(path_);
    checksum_ = crc32c(std::as_bytes(std::span(text)));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.find('\t') == std::string::npos)
        fail("{}:{}: got '{}', expected a question, a tab and an answer", path_.string(),
             lines_.size() + 1, line);
      lines_.push_back(line);
    }
  }
  std::optional<int64_t> num_examples() const override { return std::ssize(lines_); }
  // A run that is resumed with another file is refused.
  std::vector<DataPart> data_parts() const override {
    return {{path_.filename().string(), fmt::format("{:08x}", checksum_), std::ssize(lines_)}};
  }

  void fill_example(int64_t, int64_t index, const TokenRow& row) const override {
    const std::string& line = lines_[static_cast<size_t>(index)];
    std::vector<uint32_t> encoded;
    for (const int32_t id : bytes_->encode(line + "\n"))
      encoded.push_back(encode_token(id, encoded.empty()));
    fill_row(layout_, encoded, row);
    std::fill_n(row.weights.begin(), std::min(line.find('\t'), row.weights.size()), 0.0f);
  }

  std::filesystem::path path_;
  uint32_t checksum_ = 0;
  std::vector<std::string> lines_;
  std::unique_ptr<Tokenizer> bytes_ = make_tokenizer("bytes");
  RowLayout layout_{Labels::kNextToken, bytes_.get()};
};
const TemplateRegistrar<BaseInput, Pairs> kRegisterPairs;

// Labels that are digits count more.
class WeighedDigits final : public WrappedInput {
 public:
  struct HParams {
    using Instance = WeighedDigits;
    static constexpr std::string_view kName = "own_parts.WeighedDigits";
    Template<BaseInput> input_tpl;
    double factor = 2.0;
    FIELDS(input_tpl, About(factor, kNotNegative))
  };
  explicit WeighedDigits(const HParams& p)
      : WrappedInput(make_input(p.input_tpl)), factor_(static_cast<float>(p.factor)) {}
  std::optional<Batch> get_next() override { return weighed(WrappedInput::get_next()); }
  std::optional<Batch> peek() override { return weighed(WrappedInput::peek()); }

 private:
  std::optional<Batch> weighed(std::optional<Batch> batch) const {
    if (!batch) return batch;
    const auto* const labels = batch->at("labels").data<int32_t>();
    auto* const weights = batch->at("weights").data<float>();
    for (size_t i = 0; i < batch->at("weights").bytes.size() / sizeof(float); ++i)
      if (labels[i] >= '0' && labels[i] <= '9') weights[i] *= factor_;
    return batch;
  }

  float factor_;
};
const TemplateRegistrar<BaseInput, WeighedDigits> kRegisterWeighedDigits;

// Drops short documents.
class LongDocuments final : public BaseDocumentMap {
 public:
  struct HParams {
    using Instance = LongDocuments;
    static constexpr std::string_view kName = "own_parts.LongDocuments";
    int64_t least_bytes = 100;
    FIELDS(About(least_bytes, kSize))
  };
  explicit LongDocuments(const HParams& p) : least_bytes_(p.least_bytes) {}
  std::optional<std::string> map(std::string document) const override {
    if (std::ssize(document) < least_bytes_) return std::nullopt;
    return document;
  }

 private:
  int64_t least_bytes_;
};
const TemplateRegistrar<BaseDocumentMap, LongDocuments> kRegisterLongDocuments;

// Texts between lines of '%', as the program fortune reads them.
extern const DocumentFormat kFortunes;
class Fortunes final : public PieceDocuments {
 public:
  Fortunes(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : PieceDocuments(kFortunes, std::move(source), "\n%\n", options) {}

 private:
  Record parse(std::string_view piece) override { return checked(std::string(piece)); }
};
const DocumentFormat kFortunes = {
    .name = "fortunes",
    .title = "fortunes",
    .extensions = {".fortunes"},
    .record = "fortune",
    .is_text = true,
    .open = [](std::unique_ptr<ByteSource> source, const ReadOptions& options) {
      return std::unique_ptr<DocumentReader>(
          std::make_unique<Fortunes>(std::move(source), options));
    }};
const DocumentFormatRegistrar kRegisterFortunes(kFortunes);

}  // namespace own_parts

namespace tessera {
namespace {

using own_parts::FocalLm;
using own_parts::Lion;
using own_parts::LongDocuments;
using own_parts::Pairs;
using own_parts::WeighedDigits;

TEST_CASE("an optimizer of one's own takes the steps of its paper") {
  OptimizerTrial trial{.optimizer_tpl = Lion::HParams{.beta1 = 0.9, .beta2 = 0.5},
                       .type = make_type(DType::kF32, {{"embed", 2, {}}}),
                       .parameter = {1.0, -1.0}};
  // First the signs of the gradients; then of 0.9·2 - 0.1·100 and 0.9·(-1).
  trial.run({{4.0, -2.0}, {-100.0, 0.0}});
  REQUIRE(trial.parameter[0] == Approx(1.0 - 0.1 + 0.1));
  REQUIRE(trial.parameter[1] == Approx(-1.0 + 0.1 + 0.1));
  REQUIRE(trial.slots[0][0] == Approx(0.5 * 2.0 - 0.5 * 100.0));
}

ExperimentConfig own_config(const std::filesystem::path& file, double focus = 1.0) {
  ExperimentConfig config = tiny_config(30);
  TransformerLm::HParams lm =
      task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.vocab_size = 257;
  task_of(config).model = FocalLm::HParams{.lm_tpl = lm, .focus = focus};
  task_of(config).learner.optimizer_tpl = Lion::HParams{.learning_rate = 3e-3};
  config.input = Pairs::HParams{.path = file.string(), .global_batch_size = 4, .seq_len = 16};
  config.eval_inputs = {
      {"validation",
       Pairs::HParams{
           .path = file.string(), .global_batch_size = 4, .seq_len = 16, .repeat = false}}};
  return config;
}

TEST_CASE("a run learns with an input, a loss and an optimizer of one's own, and resumes") {
  const TemporaryDirectory directory;
  write_bytes(directory / "pairs.tsv", "one\t1\ntwo\t2\nthree\t3\nfour\t4\nfive\t5\n");
  const ExperimentConfig config = own_config(directory / "pairs.tsv");
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const std::vector<double> losses = numbers_of(directory / "run", "loss");
  REQUIRE(losses.size() == 30);
  REQUIRE(losses.back() < 0.5 * losses.front());
  // The focal loss is below cross-entropy, which is reported beside it. 5 answers, 2 bytes each.
  REQUIRE(losses.back() < numbers_of(directory / "run", "log_pplx").back());
  REQUIRE(numbers_of(directory / "run", "eval/validation/weight").back() == 10.0);
  const std::vector<double> plain = [&] {
    REQUIRE(run_tiny(own_config(directory / "pairs.tsv", 0.0), directory / "plain") == 0);
    return numbers_of(directory / "plain", "loss");
  }();
  REQUIRE(plain.front() == Approx(numbers_of(directory / "run", "log_pplx").front()));

  write_bytes(directory / "pairs.tsv", "one\t1\n");
  ExperimentConfig longer = config;
  task_of(longer).train.num_train_steps = 40;
  REQUIRE_THAT(error_of([&] { run_tiny(longer, directory / "run"); }),
               Catch::Contains("input 'pairs': the data differs from the run's"));
  write_bytes(directory / "bad.tsv", "one\t1\ntwo 2\n");
  REQUIRE_THAT(error_of([&] { run_tiny(own_config(directory / "bad.tsv"), directory / "bad"); }),
               Catch::Contains("bad.tsv:2: got 'two 2', expected a question, a tab and an answer"));
}

TEST_CASE("an input around another weighs tokens, in each step and after a resume") {
  const TemporaryDirectory directory;
  write_bytes(directory / "pairs.tsv", "one\t1\ntwo\t2\nthree\t3\nfour\t4\nfive\t5\n");
  const Template<BaseInput> pairs = Pairs::HParams{
      .path = (directory / "pairs.tsv").string(), .global_batch_size = 4, .seq_len = 16};
  const Template<BaseInput> weighed = WeighedDigits::HParams{.input_tpl = pairs, .factor = 0.25};
  const auto plain_input = pairs.instantiate(), input = weighed.instantiate();
  plain_input->attach({});
  input->attach({});
  for (int64_t step = 0; step < 3; ++step) {
    const Batch plain = *plain_input->get_next(), batch = *input->get_next();
    for (size_t i = 0; i < 64; ++i) {
      const bool is_digit = std::isdigit(batch.at("labels").data<int32_t>()[i]) != 0;
      REQUIRE(batch.at("weights").data<float>()[i] ==
              plain.at("weights").data<float>()[i] * (is_digit ? 0.25f : 1.0f));
    }
  }
  ExperimentConfig config = own_config(directory / "pairs.tsv");
  config.input = weighed;
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const std::vector<double> losses = numbers_of(directory / "run", "loss");
  REQUIRE(losses.size() == 30);
  REQUIRE(losses.back() < 0.5 * losses.front());
  config.input = pairs;
  REQUIRE(run_tiny(config, directory / "plain") == 0);
  REQUIRE(numbers_of(directory / "plain", "loss").front() != losses.front());
}

// The text of one row's ids that count.
std::string text_of_row(const Batch& batch, const Tokenizer& bytes) {
  const auto* const labels = batch.at("labels").data<int32_t>();
  const auto* const weights = batch.at("weights").data<float>();
  std::vector<int32_t> ids;
  for (size_t i = 0; i < batch.at("weights").bytes.size() / sizeof(float); ++i)
    if (weights[i] > 0.0f) ids.push_back(labels[i]);
  return bytes.decode(ids);
}

TEST_CASE("a format and a map of documents of one's own feed both inputs, and resume exactly") {
  const TemporaryDirectory directory;
  std::string file, expected;
  for (int i = 0; i < 40; ++i) {
    const std::string text =
        fmt::format("{} says {}", i, std::string(static_cast<size_t>(i % 7), 'z'));
    file += text + "\n%\n";
    if (text.size() >= 9) expected += text;
  }
  const auto bytes = make_tokenizer("bytes");
  write_bytes(directory / "a.fortunes", file);
  const Template<BaseDocumentMap> map = LongDocuments::HParams{.least_bytes = 9};
  const StreamingTextInput::HParams stream{.path = (directory / "a.fortunes").string(),
                                           .split = StreamSplit::kAll,
                                           .global_batch_size = 1,
                                           .seq_len = 16,
                                           .labels = Labels::kShiftRight,
                                           .document_map_tpl = map,
                                           .shuffle = false,
                                           .repeat = false};
  StreamingTextInput input(stream);
  input.attach({});
  std::string seen;
  std::vector<InputState> states;
  std::vector<std::string> rows;
  while (const auto batch = input.get_next()) {
    states.push_back(input.state());
    rows.push_back(text_of_row(*batch, *bytes));
    seen += rows.back();
  }
  REQUIRE(seen == expected);
  for (size_t at = 0; at + 1 < rows.size(); at += 3) {
    StreamingTextInput resumed(stream);
    resumed.attach({});
    resumed.restore(states[at]);
    REQUIRE(text_of_row(*resumed.get_next(), *bytes) == rows[at + 1]);
  }

  TextInput::HParams text{.path = (directory / "a.fortunes").string(),
                          .document_map_tpl = map,
                          .validation_fraction = 0.0,
                          .global_batch_size = 1,
                          .seq_len = 64};
  const auto tokens = [&] {
    TextInput built(text);
    built.attach({.run_directory = directory.path(), .run_begun = false});
    return FlatTokensReader(directory / "corpus.h5", "train").num_tokens();
  };
  REQUIRE(tokens() == std::ssize(expected));
  text.document_map_tpl.as<LongDocuments::HParams>().least_bytes = 1;  // Another snapshot.
  REQUIRE(tokens() > std::ssize(expected));
}

}  // namespace
}  // namespace tessera
