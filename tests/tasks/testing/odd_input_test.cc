// SPDX-License-Identifier: Apache-2.0
// Inputs of plugins that return invalid results, or throw: every function that they override
// ends in an Error that names the class, in training and in evaluation.
#include <cmath>

#include "inputs/checked_input.h"
#include "tasks/testing/tested_input.h"
#include "tests/tasks/testing/odd_model.h"

namespace tessera {

// Batches of two rows, or what `fault` says.
class OddInput final : public BaseInput {
 public:
  struct HParams {
    using Instance = OddInput;
    static constexpr std::string_view kName = "OddInput";
    std::string fault;
    int64_t num_batches = 3;
    FIELDS(fault, num_batches)
  };
  explicit OddInput(const HParams& p) : p_(p), name_("odd") { throw_if(p.fault, "constructor"); }
  const std::string& name() const override {
    throw_if(p_.fault, "name()");
    return name_;
  }
  int64_t global_batch_size() const override {
    throw_if(p_.fault, "global_batch_size()");
    return is("no rows") ? 0 : 2;
  }
  void attach(const Infeed& infeed) override {
    throw_if(p_.fault, "attach()");
    rows_ = rows_of_host(*this, infeed)[0];
  }
  int64_t vocab_size() const override {
    throw_if(p_.fault, "vocab_size()");
    return is("no vocabulary") ? -1 : 16;
  }
  bool repeats() const override {
    throw_if(p_.fault, "repeats()");
    return false;
  }
  Batch specification() const override {
    throw_if(p_.fault, "specification()");
    if (is("no array")) return {};
    const int64_t rows = rows_.size();
    Batch arrays = {{"ids", {DType::kI32, {"batch", "seq"}, {rows, 4}, {}}},
                    {"weights", {DType::kF32, {"batch", "seq"}, {rows, 4}, {}}},
                    {"source", {DType::kI32, {"batch"}, {rows}, {}}}};
    HostArray& ids = arrays["ids"];
    if (is("no axes")) ids.axes.clear(), ids.shape.clear();
    if (is("axis without a size")) ids.shape.pop_back();
    if (is("axis twice")) ids.axes[1] = "batch";
    if (is("batch last")) std::swap(ids.axes[0], ids.axes[1]);
    if (is("negative size")) ids.shape[1] = -4;
    if (is("other rows")) ids.shape[0] = 3;
    return arrays;
  }
  std::optional<Batch> get_next() override {
    throw_if(p_.fault, "get_next()");
    std::optional<Batch> batch = peek();
    if (batch) ++position_;
    return batch;
  }
  std::optional<Batch> peek() override {
    throw_if(p_.fault, "peek()");
    const bool has_end = !is("no end");
    if (has_end && position_ >= p_.num_batches) return std::nullopt;
    Batch batch = padding_batch(specification());
    for (int64_t row = rows_.begin; row < rows_.end; ++row)
      for (int64_t i = 0; has_end && i < 4; ++i) {
        batch["ids"].data<int32_t>()[4 * (row - rows_.begin) + i] =
            static_cast<int32_t>(is("same batches") ? row : (position_ + row + i) % 8);
        batch["weights"].data<float>()[4 * (row - rows_.begin) + i] = 1.0f;
      }
    change(&batch);
    return batch;
  }
  void reset() override {
    throw_if(p_.fault, "reset()");
    if (!is("forgets to reset")) position_ = 0;
  }
  InputState state() const override {
    throw_if(p_.fault, "state()");
    return {is("no position") ? 0 : position_, {}};
  }
  void restore(const InputState& state) override {
    throw_if(p_.fault, "restore()");
    if (!is("forgets to restore")) position_ = state.position + (is("resumes late") ? 1 : 0);
  }
  void recycle(Batch) override { throw_if(p_.fault, "recycle()"); }
  const Tokenizer* tokenizer() const override {
    throw_if(p_.fault, "tokenizer()");
    return nullptr;
  }
  std::vector<std::string> remarks() const override {
    throw_if(p_.fault, "remarks()");
    return {};
  }
  std::vector<std::string> sources() const override {
    throw_if(p_.fault, "sources()");
    if (is("no source")) return {};
    return is("source twice") ? std::vector<std::string>{"a", "a"} : std::vector{name_};
  }

 private:
  bool is(std::string_view fault) const { return p_.fault == fault; }
  void change(Batch* batch) const {
    if (is("array missing")) batch->erase("weights");
    if (is("array of another type")) batch->at("weights").dtype = DType::kI32;
    if (is("array of another shape")) batch->at("ids").shape = {4, 2};
    if (is("array too short")) batch->at("ids").bytes.resize(7);
    if (is("nan")) batch->at("weights").data<float>()[3] = std::nanf("");
    if (is("unknown source")) batch->at("source").data<int32_t>()[0] = 1;
    if (is("other on hosts") && rows_.begin > 0) batch->at("ids").data<int32_t>()[0] = 9;
  }

  HParams p_;
  std::string name_;
  RowRange rows_ = {0, 2};
  int64_t position_ = 0;
};
REGISTER_TEMPLATE(BaseInput, OddInput);

// Counts its examples wrongly.
class OddRows final : public IndexedInput {
 public:
  struct HParams {
    using Instance = OddRows;
    static constexpr std::string_view kName = "OddRows";
    int64_t examples = 0;
    bool repeat = false;
    int64_t of_part = -1;  // -1: no parts.
    FIELDS(examples, repeat, of_part)
  };
  explicit OddRows(const HParams& p)
      : IndexedInput({.name = "odd", .global_batch_size = 2, .seq_len = 4, .repeat = p.repeat}),
        p_(p) {}
  int64_t vocab_size() const override { return 8; }
  std::optional<int64_t> num_examples() const override { return p_.examples; }

 private:
  void fill_example(int64_t, int64_t, const TokenRow& row) const override { clear_row(row); }
  std::vector<DataPart> data_parts() const override {
    return p_.of_part < 0 ? std::vector<DataPart>{} : std::vector<DataPart>{{"a", "1", p_.of_part}};
  }
  HParams p_;
};
REGISTER_TEMPLATE(BaseInput, OddRows);

namespace {

using Catch::Contains;

// Returns every fault that a run of two steps can have.
std::vector<Fault> faults_of_a_run() {
  const std::string of = "tessera::OddInput::", axes = of + "specification(): array 'ids' has ";
  std::vector<Fault> faults = {
      {"no rows", {of + "global_batch_size(): returned 0, expected 1 or more"}},
      {"no vocabulary", {of + "vocab_size(): returned -1, expected 1 or more"}},
      {"no array", {of + "specification(): returned no array"}},
      {"no axes", {axes + "the axes [] and the sizes []"}},
      {"axis without a size", {axes + "the axes [batch seq] and the sizes [2]"}},
      {"axis twice", {axes + "the axes [batch batch]"}},
      {"batch last", {axes + "the axes [seq batch]"}},
      {"negative size", {axes + "the axes [batch seq] and the sizes [2 -4]"}},
      {"other rows", {"specification(): array '", "the same rows as the others"}},
      {"array missing", {of + "get_next(): the batch lacks 'weights'"}},
      {"array of another type",
       {of + "get_next(): 'weights' is i32[2 4] in 32 bytes, expected f32"}},
      {"array of another shape", {of + "get_next(): 'ids' is i32[4 2] in 32 bytes"}},
      {"array too short", {of + "get_next(): 'ids' is i32[2 4] in 7 bytes"}},
      {"nan", {of + "get_next(): 'weights' has an element that is infinite or nan"}},
      {"unknown source", {of + "get_next(): 'source' has an element outside of sources()"}},
      {"no position", {of + "state(): returned the position 0 after batch 1"}},
      {"no source", {of + "sources(): returned []"}},
      {"source twice", {of + "sources(): returned [a, a]"}},
      {"constructor throws", {"boom", "[in the constructor of tessera::OddInput of "}},
  };
  for (const std::string name : {"global_batch_size()", "attach()", "vocab_size()", "repeats()",
                                 "specification()", "get_next()", "sources()", "tokenizer()"}) {
    faults.push_back({name + " throws", {"boom", "[in " + of + name + " of "}});
    faults.push_back({name + " throws a number", {"of type int", "[in " + of + name + " of "}});
  }
  return faults;
}

TEST_CASE("what a training input gets wrong is an error with its class") {
  std::vector<Fault> faults = faults_of_a_run();
  std::erase_if(faults, [](const Fault& fault) { return fault.name.starts_with("repeats()"); });
  for (const std::string name : {"name()", "state()", "remarks()"})
    faults.push_back({name + " throws", {"boom", "[in tessera::OddInput::" + name + " of "}});
  faults.push_back({"", {"no error"}});
  require_errors(faults, [](const std::string& fault) {
    ExperimentConfig config = odd_config();
    config.input = OddInput::HParams{.fault = fault};
    return error_of_run(config);
  });
}

TEST_CASE("what an evaluation input gets wrong is an error with its class and its dataset") {
  std::vector<Fault> faults = faults_of_a_run();
  std::erase_if(faults, [](const Fault& fault) { return fault.name == "no position"; });
  faults.push_back({"reset() throws", {"boom", "[in tessera::OddInput::reset() of "}});
  faults.push_back({"", {"no error"}});
  require_errors(faults, [](const std::string& fault) {
    ExperimentConfig config = odd_config();
    config.eval_inputs = {{"odd", OddInput::HParams{.fault = fault}}};
    return error_of_run(config);
  });
}

TEST_CASE("an evaluation set that never ends is stopped at a limit", "[full]") {
  ExperimentConfig config = odd_config();
  config.eval_inputs = {{"odd", OddInput::HParams{.fault = "no end"}}};
  REQUIRE_THAT(error_of_run(config), Contains("input 'odd' has no end after 1000000 batches") &&
                                         Contains("[in eval_inputs.odd]"));
}

TEST_CASE("the limit on batches of a set is one million") {
  const auto input = make_input(OddInput::HParams{});
  check_that_it_ends(*input, 999'999);
  REQUIRE_THAT(error_of([&] { check_that_it_ends(*input, 1'000'000); }),
               Contains("return nullopt of get_next()") && Contains("or set num_batches"));
}

TEST_CASE("an exception when a batch is recycled names the class") {
  const auto input = make_input(OddInput::HParams{.fault = "recycle() throws a number"});
  REQUIRE_THAT(error_of([&] { input->recycle({}); }),
               Contains("of type int") && Contains("[in tessera::OddInput::recycle() of "));
}

TEST_CASE("a wrong number of examples is an error with the class of the input") {
  const auto error_with = [](const OddRows::HParams& p) {
    return error_of([&] { make_input(p)->attach({}); });
  };
  const std::string start = "tessera::OddRows::num_examples(): returned ";
  REQUIRE(error_with({.examples = 4}) == "no error");
  REQUIRE(error_with({.examples = 0}) == "no error");
  REQUIRE_THAT(error_with({.examples = -3}), Contains(start + "-3, expected 1 or more"));
  REQUIRE_THAT(error_with({.repeat = true}), Contains(start + "0, expected 1 or more"));
  REQUIRE_THAT(error_with({.examples = 4, .of_part = 0}),
               Contains(start + "4, expected 0, the sum of data_parts()"));
}

TEST_CASE("TestedInput accepts a correct input, and detects faults of others") {
  const TestedInput correct(OddInput::HParams{});
  correct.check();
  REQUIRE(correct.batches(10).size() == 3);
  REQUIRE(correct.batches(2).size() == 2);
  TestedInput(SyntheticInput::HParams{.global_batch_size = 4, .seq_len = 8}).check();
  TestedInput(OddInput::HParams{.fault = "same batches"}).check();
  require_errors(
      {{"forgets to reset", {"peek(), batch 0 after a reset"}},
       {"forgets to restore", {"OddInput::restore(): of the position 1 leads to 0"}},
       {"resumes late", {"batch 1 of a run that resumes there has other elements"}},
       {"other on hosts", {"batch 0 of host 1 of 2 has other elements in row 0 of 'ids'"}},
       {"array too short", {"OddInput::get_next(): 'ids'"}}},
      [](const std::string& fault) {
        return error_of([&] { TestedInput(OddInput::HParams{.fault = fault}).check(); });
      });
  REQUIRE_THAT(error_of([] { TestedInput(OddInput::HParams{.num_batches = 0}).check(); }),
               Contains("the input has no batch"));
}

}  // namespace
}  // namespace tessera
