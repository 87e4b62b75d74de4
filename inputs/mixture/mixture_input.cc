// SPDX-License-Identifier: Apache-2.0
#include "inputs/mixture/mixture_input.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, MixtureInput);

namespace {

using Cursors = std::map<std::string, std::string>;

// Keys of a state.
const std::string kGivenPrefix = "given/";
const std::string kOriginRow = "origin/row";  // If weights were changed.
const std::string kOriginPrefix = "origin/given/";
const std::string kWeights = "origin/weights";  // With order=greedy.

std::string source_prefix(const std::string& name) { return fmt::format("source/{}/", name); }

// Counts of corrupt records keep their prefix, by which they are found.
std::string corrupt_prefix(const std::string& name) {
  return std::string(kCorruptRecordsPrefix) + source_prefix(name);
}

std::string mixture_key(const std::string& name, const std::string& key) {
  return key.starts_with(kCorruptRecordsPrefix)
             ? corrupt_prefix(name) + key.substr(kCorruptRecordsPrefix.size())
             : source_prefix(name) + key;
}

Cursors cursors_of(const Cursors& all, const std::string& name) {
  Cursors found;
  for (const auto& [key, value] : all) {
    if (key.starts_with(source_prefix(name))) found[key.substr(source_prefix(name).size())] = value;
    if (key.starts_with(corrupt_prefix(name)))
      found[std::string(kCorruptRecordsPrefix) + key.substr(corrupt_prefix(name).size())] = value;
  }
  return found;
}

}  // namespace

MixtureInput::MixtureInput(const HParams& p) : IndexedInput(example_stream(p)), p_(p) {
  make_sources();
  check_order();
  make_stages();
}

// The rule has neither stages nor ends.
void MixtureInput::check_order() const {
  if (p_.order == MixtureOrder::kBlocks) return;
  if (!p_.stages.empty())
    fail("mixture '{}': order=greedy has no stages; change weights at a resume, or use blocks",
         name());
  if (p_.exhausted != Exhausted::kRestart)
    fail("mixture '{}': exhausted is '{}' with order=greedy, expected 'restart'", name(),
         enum_name(p_.exhausted));
}

void MixtureInput::make_sources() {
  if (p_.sources.empty()) fail("mixture '{}' has no sources", name());
  for (const auto& [source, input_tpl] : p_.sources) {
    const ErrorContext where("sources." + source);
    std::unique_ptr<BaseInput> input = input_tpl.instantiate();
    auto* indexed = dynamic_cast<IndexedInput*>(input.get());
    if (indexed == nullptr)
      fail(
          "mixture '{}': source '{}' is a {}, whose rows are not numbered; build flat tokens of it "
          "(flat_tokens build) and mix those",
          name(), source, input_tpl.name());
    const ExampleStream& stream = indexed->stream();
    if (stream.seq_len != this->stream().seq_len)
      fail("mixture '{}': source '{}' has seq_len={}, the mixture {}", name(), source,
           stream.seq_len, this->stream().seq_len);
    if (stream.num_batches != -1)
      fail(
          "mixture '{}': source '{}' ends after num_batches={}; leave that at -1 and set the "
          "mixture's num_batches",
          name(), source, stream.num_batches);
    input.release();
    names_.push_back(source);
    sources_.emplace_back(indexed);
  }
}

void MixtureInput::make_stages() {
  weight_stages_ = {{0, checked_weights(p_.weights, "weights")}};
  if (p_.order == MixtureOrder::kBlocks) check_counts(weight_stages_[0].weights, "weights");
  for (size_t i = 0; i < p_.stages.size(); ++i) {
    const std::string where = fmt::format("stages[{}]", i);
    const int64_t first = first_block_of(p_.stages[i].step, where);
    if (first <= weight_stages_.back().first_block)
      fail("mixture '{}': {} begins at step {}, not after the stage before it", name(), where,
           p_.stages[i].step);
    const std::string name = where + ".weights";
    weight_stages_.push_back({first, checked_weights(p_.stages[i].weights, name)});
    check_counts(weight_stages_.back().weights, name);
  }
}

// Returns the weights in the order of the sources.
std::vector<double> MixtureInput::checked_weights(const std::map<std::string, double>& weights,
                                                  const std::string& where) const {
  std::vector<double> of_source;
  for (const auto& [source, weight] : weights)
    if (!p_.sources.contains(source))
      fail("mixture '{}': {} names '{}', which is not a source; sources are {}{}", name(), where,
           source, fmt::join(names_, ", "), did_you_mean(source, names_));
  for (const std::string& source : names_) {
    const auto weight = weights.find(source);
    if (weight == weights.end())
      fail("mixture '{}': {} has no weight for source '{}'; use 0 to exclude it", name(), where,
           source);
    of_source.push_back(weight->second);
  }
  const double total = std::accumulate(of_source.begin(), of_source.end(), 0.0);
  if (total == 0.0) fail("mixture '{}': {} add up to 0, expected more", name(), where);
  return of_source;
}

void MixtureInput::check_counts(const std::vector<double>& weights,
                                const std::string& where) const {
  const std::vector<int64_t> counts = apportion_rows(weights, p_.block_size);
  for (size_t i = 0; i < counts.size(); ++i)
    if (weights[i] > 0.0 && counts[i] == 0)
      fail(
          "mixture '{}': {}.{}={:g} of {:g} is less than one row in a block of {}; increase "
          "block_size, or exclude the source with 0",
          name(), where, names_[i], weights[i],
          std::accumulate(weights.begin(), weights.end(), 0.0), p_.block_size);
}

// Returns the first block of a stage. Stages begin at blocks, in which weights are exact.
int64_t MixtureInput::first_block_of(int64_t step, const std::string& where) const {
  const int64_t batch = stream().global_batch_size;
  if (step * batch % p_.block_size != 0) {
    const int64_t every = p_.block_size / std::gcd(p_.block_size, batch);
    const int64_t before = step / every * every;
    fail(
        "mixture '{}': {} begins at step {}, within a block of {} rows; blocks begin every {} "
        "steps of {} rows: use step {}{}",
        name(), where, step, p_.block_size, every, batch, before + every,
        before > 0 ? fmt::format(" or {}", before) : "");
  }
  return step * batch / p_.block_size;
}

void MixtureInput::open(const Infeed& infeed) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const ErrorContext where("sources." + names_[i]);
    // Rows are requested one by one, from the whole source.
    sources_[i]->attach({.num_infeed_hosts = infeed.num_infeed_hosts,
                         .rows = {{0, sources_[i]->global_batch_size()}},
                         .run_directory = infeed.run_directory,
                         .run_begun = infeed.run_begun});
  }
  check_agreement();
  begin_schedule(start(), start());
}

void MixtureInput::check_agreement() const {
  for (size_t i = 0; i < sources_.size(); ++i)
    if (!sources_[i]->repeats() && !sources_[i]->num_examples())
      fail(
          "mixture '{}': source '{}' ends after a number of rows that is not known before it is "
          "read; set its repeat=true, or build flat tokens of it (flat_tokens build)",
          name(), names_[i]);
  for (size_t i = 1; i < sources_.size(); ++i) {
    const std::string first = sources_[0]->ids_fingerprint(),
                      other = sources_[i]->ids_fingerprint();
    if (other != first)
      fail(
          "mixture '{}': source '{}' has the tokenizer fingerprint '{}', source '{}' has '{}'; "
          "build the tokens of both with one tokenizer",
          name(), names_[0], first, names_[i], other);
    if (sources_[i]->vocab_size() != sources_[0]->vocab_size())
      fail("mixture '{}': source '{}' has a vocabulary of {}, source '{}' one of {}", name(),
           names_[0], sources_[0]->vocab_size(), names_[i], sources_[i]->vocab_size());
  }
}

void MixtureInput::begin_schedule(const Place& origin, const Place& base) {
  origin_ = origin;
  base_ = base;
  block_index_ = -1;
  if (p_.order == MixtureOrder::kGreedy) {
    std::vector<double> weights = weight_stages_[0].weights;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= sum;
    std::vector<int64_t> rows = base.given;
    for (size_t i = 0; i < rows.size(); ++i) rows[i] -= origin.given[i];
    schedule_.emplace(p_.block_size, std::move(weights), std::move(rows));
    return;
  }
  std::vector<WeightStage> stages;
  for (const WeightStage& stage : weight_stages_) {
    const int64_t rows = stage.first_block * p_.block_size - base.row;
    if (rows <= 0) stages.clear();  // Those before it are over.
    stages.push_back({rows <= 0 ? 0 : (rows - 1) / p_.block_size + 1, stage.weights});
  }
  end_sources(std::move(stages));
}

void MixtureInput::end_sources(std::vector<WeightStage> stages) {
  std::vector<MixtureSchedule::Stage> blocks;
  for (const WeightStage& stage : stages)
    blocks.push_back({stage.first_block, apportion_rows(stage.weights, p_.block_size)});
  schedule_.emplace(p_.block_size, stream().seed, std::move(blocks));
  if (p_.exhausted == Exhausted::kRestart) return;
  std::vector<std::optional<int64_t>> rows;  // That are left; nullopt: repeats or is unbounded.
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto count = sources_[i]->num_examples();
    rows.push_back(sources_[i]->stream().repeat || !count
                       ? std::nullopt
                       : std::optional(std::max<int64_t>(0, *count - base_.given[i])));
  }
  if (std::ranges::none_of(rows, [](const auto& count) { return count.has_value(); }))
    fail(
        "mixture '{}': exhausted={}, but every source repeats or is unbounded; set repeat=false in "
        "those that may end",
        name(), enum_name(p_.exhausted));
  if (p_.exhausted == Exhausted::kStop) {
    schedule_.emplace(p_.block_size, stream().seed,
                      stages_of_finite_sources(p_.block_size, stages, rows));
    return;
  }
  end_.reset();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i]) continue;
    const std::optional<int64_t> row = schedule_->row_of(static_cast<int64_t>(i), *rows[i]);
    if (row && (!end_ || base_.row + *row < end_->row)) end_ = End{base_.row + *row, i};
  }
}

std::optional<int64_t> MixtureInput::num_examples() const {
  const std::optional<int64_t> rows = schedule_->size();
  return rows ? std::optional(base_.row + *rows) : std::nullopt;
}

void MixtureInput::reset() {
  for (const auto& source : sources_) source->reset();
  begin_schedule(start(), start());
  IndexedInput::reset();
}

void MixtureInput::fail_exhausted() const {
  fail(
      "mixture '{}': source '{}' is exhausted: its {} rows end before step {}; exhausted=restart "
      "repeats it, exhausted=stop continues with the other sources",
      name(), names_[end_->source], *sources_[end_->source]->num_examples(),
      end_->row / stream().global_batch_size);
}

// Fails on all hosts at the same batch, whichever would read the row.
std::optional<Batch> MixtureInput::peek() {
  const int64_t end = sizes().examples_before(position() + 1);
  const bool ended = p_.num_batches >= 0 && position() >= p_.num_batches;
  if (end_ && !ended && end > end_->row) fail_exhausted();
  return IndexedInput::peek();
}

const std::vector<MixtureSchedule::Pick>& MixtureInput::block(int64_t index) const {
  if (index != block_index_) block_ = schedule_->block(index);
  block_index_ = index;
  return block_;
}

// Returns the rows of each source in the first `examples` rows of the stream.
std::vector<int64_t> MixtureInput::given(int64_t examples) const {
  int64_t rows = examples - base_.row;
  // The last batch may be padded.
  if (const std::optional<int64_t> size = schedule_->size()) rows = std::min(rows, *size);
  const int64_t whole = rows / p_.block_size;
  std::vector<int64_t> given = schedule_->given_before(whole);
  for (size_t i = 0; i < given.size(); ++i) given[i] += base_.given[i];
  for (int64_t i = 0; i < rows % p_.block_size; ++i)
    ++given[static_cast<size_t>(block(whole)[static_cast<size_t>(i)].source)];
  return given;
}

void MixtureInput::release(int64_t examples) {
  const std::vector<int64_t> given = this->given(examples);
  for (size_t i = 0; i < sources_.size(); ++i) sources_[i]->release(given[i]);
}

void MixtureInput::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  if (end_ && index >= end_->row) fail_exhausted();  // When nested in another mixture.
  const int64_t at = index - base_.row;
  if (at < 0)
    fail(
        "mixture '{}': it was resumed with other weights at row {}, and cannot repeat rows before "
        "it; keep its weights, or set repeat=true in its sources",
        name(), base_.row);
  const MixtureSchedule::Pick& pick =
      block(at / p_.block_size)[static_cast<size_t>(at % p_.block_size)];
  const auto source = static_cast<size_t>(pick.source);
  sources_[source]->fill_numbered(base_.given[source] + pick.number, row);
  *row.source = static_cast<int32_t>(pick.source);
}

std::string MixtureInput::weights_text() const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < names_.size(); ++i)
    texts.push_back(fmt::format("{}={}", names_[i], weight_stages_[0].weights[i]));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::map<std::string, std::string> MixtureInput::cursors_at(int64_t examples) const {
  Cursors cursors;
  if (p_.order == MixtureOrder::kGreedy) cursors[kWeights] = weights_text();
  if (origin_.row > 0) cursors[kOriginRow] = std::to_string(origin_.row);
  const std::vector<int64_t> given = this->given(examples);
  for (size_t i = 0; i < sources_.size(); ++i) {
    cursors[kGivenPrefix + names_[i]] = std::to_string(given[i]);
    if (origin_.row > 0) cursors[kOriginPrefix + names_[i]] = std::to_string(origin_.given[i]);
    for (const auto& [key, value] : sources_[i]->cursors_at(given[i]))
      cursors[mixture_key(names_[i], key)] = value;
  }
  return cursors;
}

std::map<std::string, std::string> MixtureInput::contents() const {
  Cursors all;
  for (size_t i = 0; i < sources_.size(); ++i)
    for (const auto& [key, value] : sources_[i]->contents())
      all[source_prefix(names_[i]) + key] = value;
  return all;
}

void MixtureInput::resume(const std::map<std::string, std::string>& cursors, int64_t examples) {
  bool is_mixture = false;
  for (const auto& [key, before] : cursors) {
    if (!key.starts_with(kGivenPrefix)) continue;
    is_mixture = true;
    const std::string source = key.substr(kGivenPrefix.size());
    if (before != "0" && !p_.sources.contains(source))
      fail("mixture '{}': the run has read {} rows of source '{}', which is no longer a source{}",
           name(), before, source, did_you_mean(source, names_));
  }
  if (examples > 0 && !is_mixture)
    fail("mixture '{}': the saved state is of another kind of input", name());
  Place here{examples, {}}, origin{saved_integer(cursors, kOriginRow, 0).value_or(0), {}};
  for (size_t i = 0; i < sources_.size(); ++i) {
    const ErrorContext where("sources." + names_[i]);
    here.given.push_back(saved_integer(cursors, kGivenPrefix + names_[i], 0).value_or(0));
    origin.given.push_back(saved_integer(cursors, kOriginPrefix + names_[i], 0).value_or(0));
    if (cursors.contains(kGivenPrefix + names_[i]))
      sources_[i]->resume(cursors_of(cursors, names_[i]), here.given[i]);
    else
      sources_[i]->reset();
  }
  const bool is_greedy = p_.order == MixtureOrder::kGreedy;
  const auto weights = cursors.find(kWeights);
  const bool has_weights = weights != cursors.end();
  begin_schedule(origin, is_greedy ? here : origin);
  const bool continues = is_greedy ? has_weights && weights->second == weights_text()
                                   : !has_weights && given(examples) == here.given;
  if (!continues) begin_schedule(here, here);
}

}  // namespace tessera
