// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/decode_program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/base/multiples.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr const char* kAgreement = "a step of decoding";

// A type with an axis "batch" of `rows`, laid out by the activation rules.
Type batch_type(const ModelSession& session, int64_t rows) {
  return apply_rules(session.rules().activations, session.mesh(),
                     make_type(DType::kI32, {{"batch", rows, {}}}));
}

// Which rows of a batch each process decides for: those that its devices and no earlier process's
// hold. Sets whether processes share rows.
std::vector<std::vector<int64_t>> divide_rows(const ModelSession& session, int64_t rows,
                                              bool* are_shared) {
  const int64_t devices = session.executor().local_devices();
  std::vector<std::vector<int64_t>> divided(static_cast<size_t>(session.processes().size()));
  std::set<int64_t> taken;
  for (size_t rank = 0; rank < divided.size(); ++rank)
    for (const RowRange& range : rows_of(batch_type(session, rows), session.mesh(),
                                         static_cast<int64_t>(rank) * devices, devices))
      for (int64_t row = range.begin; row < range.end; ++row)
        taken.insert(row).second ? divided[rank].push_back(row) : void(*are_shared = true);
  return divided;
}

}  // namespace

int64_t decode_rows(const ModelSession& session, const DecodeHParams& p, int64_t prompts) {
  const int64_t width = rows_per_prompt(p);
  const int64_t at_once =
      std::min(prompts * static_cast<int64_t>(runs_per_prompt(p)), p.batch / width);
  return rounded_up(std::max<int64_t>(at_once, 1), session.batch_parts()) * width;
}

DecodeShare decode_share(const ModelSession& session) {
  bool unused = false;
  DecodeShare share{.index = -1, .count = 0};
  const auto parts = divide_rows(session, session.batch_parts(), &unused);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].empty()) continue;
    if (std::cmp_equal(rank, session.processes().rank())) share.index = share.count;
    ++share.count;
  }
  return share;
}

int64_t trained_window(const BaseInput& input) {
  return input.specification().contains("encoder_ids") ? 0 : sequence_length(input);
}

DecodeProgram::DecodeProgram(ModelSession& session, const DecodeSizes& sizes)
    : executor_(session.executor()),
      processes_(session.processes()),
      sizes_(sizes),
      rows_of_process_(divide_rows(session, sizes.rows, &is_shared_)),
      start_id_(session.task().model().decoder_start_id()),
      before_(own_rows().size()) {
  DecodeSetting setting{.mesh = session.mesh(),
                        .rules = session.rules(),
                        .batch = sizes.rows,
                        .rows_per_prompt = sizes.rows_per_prompt,
                        .seq = 1,
                        .cache_length = sizes.cache_length,
                        .encoder_length = start_id_ ? sizes.prefill_chunk : 0,
                        .cache = sizes.cache,
                        .keep_cast_weights = sizes.keep_cast_weights};
  const Type rows = batch_type(session, sizes.rows);
  const auto problem = type_problem(rows, session.mesh());
  CHECK(!problem, "{}", *problem);
  const BaseTask& task = session.task();
  const auto decode_graph = [&] {
    return graph_of(task, "decode_graph()", names::kLogits,
                    [&] { return task.decode_graph(setting, session.eval_weights()); });
  };
  const Graph step = decode_graph();
  const Type& logits = step.type(step.find_output(names::kLogits)->value);
  if (logits.rank() != 2 || logits.axes[0] != rows.axes[0] || !logits.axes[1].split.empty())
    fail_in(task, "decode_graph()", "returned logits {}, expected the axes of {} and \"vocab\"",
            logits.text_sized(), rows.text_sized());
  vocab_size_ = logits.axes.back().size;
  logits_.resize(static_cast<size_t>(logits.elements()));
  step_ = session.add_program(step);
  setting.seq = start_id_ ? 1 : sizes.prefill_chunk;
  setting.encodes = start_id_.has_value();
  prefill_ = session.add_program(decode_graph());
  setting.seq = 1;
  setting.encodes = false;
  const Graph casts = graph_of(task, "cast_weights_graph()", "", [&] {
    return task.cast_weights_graph(setting, session.eval_weights());
  });
  if (!casts.outputs().empty()) cast_weights_ = session.add_program(casts);
  if (sizes.rows_per_prompt > 1)
    reorder_ = session.add_program(graph_of(task, "reorder_cache_graph()", "",
                                            [&] { return task.reorder_cache_graph(setting); }));
}

Pass DecodeProgram::agreed(Pass wanted) {
  return static_cast<Pass>(processes_.all_reduce_max(static_cast<int64_t>(wanted), kAgreement));
}

std::span<const float> DecodeProgram::prefill(std::span<const RowTokens> rows) {
  return start_id_ ? encode(rows) : run_tokens(prefill_, sizes_.prefill_chunk, rows);
}

std::span<const float> DecodeProgram::step(std::span<const RowTokens> rows) {
  return run_tokens(step_, 1, rows);
}

// The encoder reads the prompts of rows that have tokens, and their decoder the start id.
std::span<const float> DecodeProgram::encode(std::span<const RowTokens> rows) {
  const int64_t length = sizes_.prefill_chunk;
  RowInputs inputs;
  std::vector<int32_t>& encoder_ids = inputs[names::kEncoderIds];
  std::vector<int32_t>& segment_ids = inputs[names::kEncoderSegmentIds];
  for (std::vector<int32_t>* const each : {&encoder_ids, &segment_ids})
    each->assign(static_cast<size_t>(sizes_.rows * length), 0);
  std::vector<RowTokens> starts(rows.begin(), rows.end());
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::span<const int32_t> ids = rows[row].ids;
    if (ids.empty()) continue;
    CHECK(rows[row].position == 0 && std::ssize(ids) <= length);
    const int64_t at = own_rows()[row] * length;
    std::copy(ids.begin(), ids.end(), encoder_ids.begin() + at);
    std::fill_n(segment_ids.begin() + at, ids.size(), 1);
    before_[row] = std::ssize(ids) - 1;
    starts[row] = {.position = before_[row], .ids = std::span(&*start_id_, 1)};
  }
  return run_tokens(prefill_, 1, starts, std::move(inputs));
}

std::span<const float> DecodeProgram::run_tokens(int program, int64_t seq,
                                                 std::span<const RowTokens> rows,
                                                 RowInputs inputs) {
  CHECK(std::ssize(rows) == this->rows());
  const auto all_rows = static_cast<size_t>(sizes_.rows);
  std::vector<int32_t>& all_ids = inputs[names::kIds];
  all_ids.assign(all_rows * static_cast<size_t>(seq), 0);
  for (const std::string_view name : {names::kStarts, names::kLast, names::kTokens})
    inputs[name].assign(all_rows, 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [position, ids, prompt] = rows[i];
    const auto row = static_cast<size_t>(own_rows()[i]);
    CHECK(std::ssize(ids) <= seq && position + std::ssize(ids) <= sizes_.cache_length);
    std::copy(ids.begin(), ids.end(), all_ids.begin() + own_rows()[i] * seq);
    inputs[names::kStarts][row] = static_cast<int32_t>(std::max<int64_t>(position - before_[i], 0));
    inputs[names::kLast][row] = static_cast<int32_t>(ids.size()) - 1;
    const int64_t tokens = std::max(prompt, position + std::ssize(ids)) - before_[i];
    inputs[names::kTokens][row] = static_cast<int32_t>(std::max<int64_t>(tokens, 0));
  }
  run(program, std::move(inputs));
  executor_.read_held_floats(program, names::kLogits, logits_);
  // Own rows come first.
  for (size_t i = 0; i < rows.size(); ++i)
    if (const int64_t row = own_rows()[i]; std::cmp_not_equal(row, i))
      std::copy_n(logits_.begin() + row * vocab_size_, vocab_size_,
                  logits_.begin() + static_cast<int64_t>(i) * vocab_size_);
  return std::span(logits_).first(rows.size() * static_cast<size_t>(vocab_size_));
}

void DecodeProgram::reorder(std::span<const int32_t> parents) {
  CHECK(reorder_.has_value(), "rows are exchanged by beam search only");
  RowInputs inputs;
  std::vector<int32_t>& within_prompt = inputs[names::kParents];
  within_prompt.resize(static_cast<size_t>(sizes_.rows));
  const std::vector<int64_t> before = before_;
  for (size_t i = 0; i < parents.size(); ++i) {
    before_[i] = before[static_cast<size_t>(parents[i])];
    within_prompt[static_cast<size_t>(own_rows()[i])] =
        parents[i] % static_cast<int32_t>(sizes_.rows_per_prompt);
  }
  run(*reorder_, std::move(inputs));
}

void DecodeProgram::run(int program, RowInputs inputs) {
  if (is_shared_) exchange(&inputs);
  for (const auto& [name, values] : inputs) write(program, name, values);
  executor_.run(program);
}

// Takes the values of rows from the processes that decide for them.
void DecodeProgram::exchange(RowInputs* inputs) {
  const auto each_row = [&](size_t rank, auto visit) {
    for (auto& [name, values] : *inputs) {
      const int64_t width = std::ssize(values) / sizes_.rows;
      for (const int64_t row : rows_of_process_[rank])
        visit(std::span(values).subspan(static_cast<size_t>(row * width),
                                        static_cast<size_t>(width)));
    }
  };
  std::vector<int32_t> own;
  each_row(static_cast<size_t>(processes_.rank()),
           [&](auto row) { own.insert(own.end(), row.begin(), row.end()); });
  const std::vector<std::string> texts = processes_.all_gather(pack(own), kAgreement);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::vector<int32_t> values;
    unpack(texts[rank], values);
    auto from = values.begin();
    each_row(rank, [&](auto row) {
      CHECK(std::ssize(row) <= values.end() - from, "rows of another process are missing");
      std::copy_n(from, row.size(), row.begin());
      from += std::ssize(row);
    });
  }
}

// The rows of an input that this process's devices hold.
void DecodeProgram::write(int program, std::string_view name, std::span<const int32_t> values) {
  if (!has_input(executor_, program, name)) return;
  const int64_t width = std::ssize(values) / sizes_.rows;
  std::vector<int32_t> mine;
  for (const RowRange& range : executor_.input_rows(program, name))
    mine.insert(mine.end(), values.begin() + range.begin * width,
                values.begin() + range.end * width);
  executor_.write_input(program, name, std::as_bytes(std::span(mine)));
}

void DecodeProgram::cast_weights() {
  if (cast_weights_) executor_.run(*cast_weights_);
}

Decoding::Decoding(ModelSession& session, const DecodeHParams& p, int64_t prompts,
                   int64_t longest_prompt, const std::string& cache, bool keep_cast_weights)
    : p_(p),
      processes_(session.processes()),
      program_(session,
               {.rows = decode_rows(session, p, prompts),
                .rows_per_prompt = rows_per_prompt(p),
                .cache_length = cache_needed(p, longest_prompt),
                .prefill_chunk =
                    session.task().model().decoder_start_id() ? longest_prompt : p.prefill_chunk,
                .cache = cache,
                .keep_cast_weights = keep_cast_weights}) {
  if (p.window > 0 && session.task().model().decoder_start_id())
    fail(
        "task.decode.window={}: the model has an encoder, which reads a prompt as a whole; leave "
        "the window unset",
        p.window);
}

void Decoding::begin(const PromptText* text) { decoder_.emplace(program_, p_, *text); }

int Decoding::decode(std::vector<DecodedExample>* examples, const StopSignal* stop) {
  CHECK(decoder_.has_value(), "decoding begins before it runs");
  program_.cast_weights();
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int64_t> numbers;
  for (const DecodedExample& example : *examples) {
    prompts.push_back(example.prompt_ids);
    numbers.push_back(example.number);
  }
  Decoder::Samples samples = decoder_->decode(prompts, stop, numbers);
  for (size_t i = 0; i < samples.size(); ++i) (*examples)[i].samples = std::move(samples[i]);
  const int64_t signal =
      stop == nullptr ? 0 : processes_.all_reduce_max(stop->requested(), kAgreement);
  if (signal == 0) gather_examples(examples, processes_);
  return static_cast<int>(signal);
}

}  // namespace tessera
