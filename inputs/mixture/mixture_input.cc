// SPDX-License-Identifier: Apache-2.0
#include "inputs/mixture/mixture_input.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, MixtureInput);

namespace {

const std::string kGivenPrefix = "given/";

std::string source_prefix(const std::string& name) { return fmt::format("source/{}/", name); }

}  // namespace

MixtureInput::MixtureInput(const HParams& p)
    : IndexedInput(example_stream(p)), p_(p), schedule_((make_sources(), make_schedule())) {}

void MixtureInput::make_sources() {
  if (p_.sources.empty()) fail("mixture '{}' has no sources", name());
  for (const auto& [source, input_tpl] : p_.sources) {
    const ErrorContext where("sources." + source);
    std::unique_ptr<BaseInput> input = input_tpl.instantiate();
    auto* indexed = dynamic_cast<IndexedInput*>(input.get());
    if (indexed == nullptr)
      fail(
          "mixture '{}': source '{}' is a {}, which has no random access to rows; build flat "
          "tokens of it (flat_tokens build) and mix those",
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

MixtureSchedule MixtureInput::make_schedule() {
  weight_stages_ = {{0, checked_weights(p_.weights, "weights")}};
  std::vector<MixtureSchedule::Stage> stages = {
      {0, block_counts(weight_stages_[0].weights, "weights")}};
  for (size_t i = 0; i < p_.stages.size(); ++i) {
    const std::string where = fmt::format("stages[{}]", i);
    const int64_t first = first_block_of(p_.stages[i].step, where);
    if (first <= stages.back().first_block)
      fail("mixture '{}': {} begins at step {}, not after the stage before it", name(), where,
           p_.stages[i].step);
    const std::string name = where + ".weights";
    weight_stages_.push_back({first, checked_weights(p_.stages[i].weights, name)});
    stages.push_back({first, block_counts(weight_stages_.back().weights, name)});
  }
  return {p_.block_size, stream().seed, std::move(stages)};
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

std::vector<int64_t> MixtureInput::block_counts(const std::vector<double>& weights,
                                                const std::string& where) const {
  std::vector<int64_t> counts = apportion_rows(weights, p_.block_size);
  for (size_t i = 0; i < counts.size(); ++i)
    if (weights[i] > 0.0 && counts[i] == 0)
      fail(
          "mixture '{}': {}.{}={:g} of {:g} is less than one row in a block of {}; increase "
          "block_size, or exclude the source with 0",
          name(), where, names_[i], weights[i],
          std::accumulate(weights.begin(), weights.end(), 0.0), p_.block_size);
  return counts;
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
  end_sources();
}

void MixtureInput::check_agreement() const {
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

void MixtureInput::end_sources() {
  if (p_.exhausted == Exhausted::kRestart) return;
  std::vector<std::optional<int64_t>> rows;  // nullopt: repeats or is unbounded.
  for (const auto& source : sources_)
    rows.push_back(source->stream().repeat ? std::nullopt : source->num_examples());
  if (std::none_of(rows.begin(), rows.end(), [](const auto& count) { return count.has_value(); }))
    fail(
        "mixture '{}': exhausted={}, but every source repeats or is unbounded; set repeat=false in "
        "those that may end",
        name(), enum_name(p_.exhausted));
  if (p_.exhausted == Exhausted::kStop) {
    schedule_ = MixtureSchedule(p_.block_size, stream().seed,
                                stages_of_finite_sources(p_.block_size, weight_stages_, rows));
    return;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i]) continue;
    const std::optional<int64_t> row = schedule_.row_of(static_cast<int64_t>(i), *rows[i]);
    if (row && (!end_ || *row < end_->row)) end_ = End{*row, i};
  }
}

std::optional<int64_t> MixtureInput::num_examples() const { return schedule_.size(); }

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
  if (index != block_index_) block_ = schedule_.block(index);
  block_index_ = index;
  return block_;
}

// Returns the rows of each source in the first `examples` rows of the stream.
std::vector<int64_t> MixtureInput::given(int64_t examples) const {
  // The last batch may be padded.
  if (const std::optional<int64_t> size = schedule_.size()) examples = std::min(examples, *size);
  const int64_t whole = examples / p_.block_size;
  std::vector<int64_t> given = schedule_.given_before(whole);
  const int64_t rest = examples % p_.block_size;
  for (int64_t i = 0; i < rest; ++i)
    ++given[static_cast<size_t>(block(whole)[static_cast<size_t>(i)].source)];
  return given;
}

void MixtureInput::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  if (end_ && index >= end_->row) fail_exhausted();  // When nested in another mixture.
  const MixtureSchedule::Pick& pick =
      block(index / p_.block_size)[static_cast<size_t>(index % p_.block_size)];
  sources_[static_cast<size_t>(pick.source)]->fill_numbered(pick.number, row);
  *row.source = static_cast<int32_t>(pick.source);
}

std::map<std::string, std::string> MixtureInput::cursors_at(int64_t examples) const {
  std::map<std::string, std::string> cursors;
  const std::vector<int64_t> given = this->given(examples);
  for (size_t i = 0; i < sources_.size(); ++i) {
    cursors[kGivenPrefix + names_[i]] = std::to_string(given[i]);
    for (const auto& [key, value] : sources_[i]->cursors_at(given[i]))
      cursors[source_prefix(names_[i]) + key] = value;
  }
  return cursors;
}

std::map<std::string, std::string> MixtureInput::contents() const {
  std::map<std::string, std::string> all;
  for (size_t i = 0; i < sources_.size(); ++i)
    for (const auto& [key, value] : sources_[i]->contents())
      all[source_prefix(names_[i]) + key] = value;
  return all;
}

// Checks cursors. Later weights may change. Changed earlier weights, or changed row counts of
// exhausted sources, would skip or repeat rows.
void MixtureInput::check_cursors(const std::map<std::string, std::string>& cursors,
                                 int64_t examples) const {
  const std::vector<int64_t> given = this->given(examples);
  for (const auto& [key, before] : cursors) {
    if (!key.starts_with(kGivenPrefix) || before == "0") continue;
    const std::string source = key.substr(kGivenPrefix.size());
    if (!p_.sources.contains(source))
      fail("mixture '{}': the run has read {} rows of source '{}', which is no longer a source{}",
           name(), before, source, did_you_mean(source, names_));
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto before = cursors.find(kGivenPrefix + names_[i]);
    const std::string was = before == cursors.end() ? "0" : before->second;
    if (was != std::to_string(given[i]))
      fail(
          "mixture '{}': the run has read {} rows of source '{}' in its first {} rows; with the "
          "current weights, stages, block size and sources it would be {}. Change weights only in "
          "a later stage",
          name(), was, names_[i], examples, given[i]);
    std::map<std::string, std::string> of_source;
    const std::string prefix = source_prefix(names_[i]);
    for (const auto& [key, value] : cursors)
      if (key.starts_with(prefix)) of_source[key.substr(prefix.size())] = value;
    const ErrorContext where("sources." + names_[i]);
    sources_[i]->check_cursors(of_source, given[i]);
  }
}

}  // namespace tessera
