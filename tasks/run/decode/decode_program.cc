// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/decode_program.h"

#include <algorithm>

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

}  // namespace

// The command that process 0 runs and sends to the others.
struct DecodeProgram::Command {
  enum class Kind : int32_t { kEnd, kTokens, kReorder };
  Kind kind = Kind::kEnd;
  int32_t program = 0;
  std::vector<int32_t> ids, starts, last;  // For kReorder: the parents, in `ids`.
  std::vector<int32_t> encoder_ids, encoder_segment_ids;

  std::string text() const {
    return pack(kind, program, ids, starts, last, encoder_ids, encoder_segment_ids);
  }
  static Command of(const std::string& text) {
    Command command;
    unpack(text, command.kind, command.program, command.ids, command.starts, command.last,
           command.encoder_ids, command.encoder_segment_ids);
    return command;
  }
};

int64_t decode_rows(const ModelSession& session, const DecodeHParams& p, int64_t prompts) {
  const int64_t width = rows_per_prompt(p);
  const int64_t runs = p.strategy == DecodeStrategy::kBeam ? 1 : p.num_samples;
  const int64_t at_once = std::max<int64_t>(1, std::min(prompts, p.batch) * runs);
  const int64_t rows = std::min(at_once * width, p.batch);
  return rounded_up(rows, session.batch_parts());
}

int64_t trained_window(const BaseInput& input) {
  return input.specification().contains("encoder_ids") ? 0 : sequence_length(input);
}

DecodeProgram::DecodeProgram(ModelSession& session, const DecodeSizes& sizes,
                             DecodeStrategy strategy)
    : executor_(session.executor()),
      processes_(session.processes()),
      sizes_(sizes),
      start_id_(session.task().model().decoder_start_id()),
      before_(static_cast<size_t>(sizes.rows), 0) {
  DecodeSetting setting{.mesh = session.mesh(),
                        .rules = session.rules(),
                        .batch = sizes.rows,
                        .seq = 1,
                        .cache_length = sizes.cache_length,
                        .encoder_length = start_id_ ? sizes.prefill_chunk : 0,
                        .cache = sizes.cache,
                        .keep_cast_weights = sizes.keep_cast_weights};
  const auto problem = type_problem(batch_type(session, sizes.rows), session.mesh());
  CHECK(!problem, "{}", *problem);
  const BaseTask& task = session.task();
  const auto decode_graph = [&] {
    return graph_of(task, "decode_graph()", names::kLogits,
                    [&] { return task.decode_graph(setting, session.eval_weights()); });
  };
  const Graph step = decode_graph();
  const Type& logits = step.type(step.find_output(names::kLogits)->value);
  if (logits.rank() != 2 || logits.axes[0] != Axis{"batch", sizes.rows, {}})
    fail_in(task, "decode_graph()", "returned logits {}, expected f32[\"batch={} vocab\"]",
            logits.text_sized(), sizes.rows);
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
  if (strategy == DecodeStrategy::kBeam)
    reorder_ = session.add_program(graph_of(task, "reorder_cache_graph()", "",
                                            [&] { return task.reorder_cache_graph(setting); }));
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
  Command command{.kind = Command::Kind::kTokens, .program = prefill_};
  for (std::vector<int32_t>* const each : {&command.encoder_ids, &command.encoder_segment_ids})
    each->assign(static_cast<size_t>(sizes_.rows * length), 0);
  std::vector<RowTokens> starts(rows.begin(), rows.end());
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::span<const int32_t> ids = rows[row].ids;
    if (ids.empty()) continue;
    CHECK(rows[row].position == 0 && std::ssize(ids) <= length);
    const int64_t at = static_cast<int64_t>(row) * length;
    std::copy(ids.begin(), ids.end(), command.encoder_ids.begin() + at);
    std::fill_n(command.encoder_segment_ids.begin() + at, ids.size(), 1);
    before_[row] = std::ssize(ids) - 1;
    starts[row] = {.position = before_[row], .ids = std::span(&*start_id_, 1)};
  }
  return run_tokens(std::move(command), 1, starts);
}

std::span<const float> DecodeProgram::run_tokens(int program, int64_t seq,
                                                 std::span<const RowTokens> rows) {
  return run_tokens(Command{.kind = Command::Kind::kTokens, .program = program}, seq, rows);
}

std::span<const float> DecodeProgram::run_tokens(Command command, int64_t seq,
                                                 std::span<const RowTokens> rows) {
  CHECK(static_cast<int64_t>(rows.size()) == sizes_.rows);
  command.ids.assign(static_cast<size_t>(sizes_.rows * seq), 0);
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto& [position, ids] = rows[row];
    CHECK(std::ssize(ids) <= seq && position + std::ssize(ids) <= sizes_.cache_length);
    std::copy(ids.begin(), ids.end(), command.ids.begin() + static_cast<int64_t>(row) * seq);
    command.starts.push_back(static_cast<int32_t>(std::max<int64_t>(position - before_[row], 0)));
    command.last.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  const int program = command.program;
  send(command);
  obey(command);
  executor_.read_floats(program, names::kLogits, logits_);
  return logits_;
}

void DecodeProgram::reorder(std::span<const int32_t> parents) {
  CHECK(reorder_.has_value(), "rows are exchanged by beam search only");
  Command command{.kind = Command::Kind::kReorder, .program = *reorder_};
  command.ids.assign(parents.begin(), parents.end());
  const std::vector<int64_t> before = before_;
  for (size_t row = 0; row < parents.size(); ++row)
    before_[row] = before[static_cast<size_t>(parents[row])];
  send(command);
  obey(command);
}

void DecodeProgram::send(const Command& command) {
  if (processes_.size() > 1) processes_.broadcast(command.text(), kAgreement);
}

void DecodeProgram::obey(const Command& command) {
  if (command.kind == Command::Kind::kReorder) {
    write(command.program, names::kParents, command.ids, 1);
  } else {
    write(command.program, names::kIds, command.ids, std::ssize(command.ids) / sizes_.rows);
    write(command.program, names::kStarts, command.starts, 1);
    write(command.program, names::kLast, command.last, 1);
    write(command.program, names::kEncoderIds, command.encoder_ids, sizes_.prefill_chunk);
    write(command.program, names::kEncoderSegmentIds, command.encoder_segment_ids,
          sizes_.prefill_chunk);
  }
  executor_.run(command.program);
}

// The rows of an input that this process's devices hold.
void DecodeProgram::write(int program, std::string_view name, std::span<const int32_t> values,
                          int64_t width) {
  if (!has_input(executor_, program, name)) return;
  std::vector<int32_t> mine;
  for (const RowRange& range : executor_.input_rows(program, name))
    mine.insert(mine.end(), values.begin() + range.begin * width,
                values.begin() + range.end * width);
  executor_.write_input(program, name, std::as_bytes(std::span(mine)));
}

void DecodeProgram::lead_or_follow(const std::function<void()>& work) {
  if (cast_weights_) executor_.run(*cast_weights_);
  if (processes_.is_first()) {
    work();
    send(Command{});
  } else {
    for (;;) {
      const Command command = Command::of(processes_.broadcast("", kAgreement));
      if (command.kind == Command::Kind::kEnd) return;
      obey(command);
    }
  }
}

Decoding::Decoding(ModelSession& session, const DecodeHParams& p, int64_t prompts,
                   int64_t longest_prompt, const std::string& cache, bool keep_cast_weights)
    : p_(p),
      processes_(session.processes()),
      program_(session,
               {.rows = decode_rows(session, p, prompts),
                .cache_length = cache_needed(p, longest_prompt),
                .prefill_chunk =
                    session.task().model().decoder_start_id() ? longest_prompt : p.prefill_chunk,
                .cache = cache,
                .keep_cast_weights = keep_cast_weights},
               p.strategy) {
  if (p.window > 0 && session.task().model().decoder_start_id())
    fail(
        "task.decode.window={}: the model has an encoder, which reads a prompt as a whole; leave "
        "the window unset",
        p.window);
}

void Decoding::begin(const PromptText* text) {
  if (text != nullptr) decoder_.emplace(program_, p_, *text);
}

int Decoding::decode(std::vector<DecodedExample>* examples, const StopSignal* stop) {
  program_.lead_or_follow([&] {
    CHECK(decoder_.has_value(), "decoding begins before it runs");
    std::vector<std::vector<int32_t>> prompts;
    for (const DecodedExample& example : *examples) prompts.push_back(example.prompt_ids);
    std::vector<std::vector<DecodedSample>> samples = decoder_->decode(prompts, stop);
    for (size_t i = 0; i < samples.size(); ++i) (*examples)[i].samples = std::move(samples[i]);
  });
  if (stop == nullptr) return 0;
  return static_cast<int>(processes_.all_reduce_max(stop->requested(), kAgreement));
}

}  // namespace tessera
