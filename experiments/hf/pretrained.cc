// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=hf.Pretrained --mode=import --input=FOLDER
// The model of a Hugging Face directory, of any family in tasks/families. --mode=import
// --input=<path> imports its weights; otherwise they are initialised. Importing, exporting and
// continuing prompts need no data; training and evaluation do.
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/masked_input.h"
#include "inputs/span_corruption_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "layers/models/transformer.h"
#include "plugins/registry.h"
#include "tasks/interop/hf_files.h"
#include "tasks/interop/hf_model.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {

struct Pretrained : Experiment {
  using Base = Experiment;
  static constexpr std::string_view kSummary =
      "the model of a Hugging Face directory, as in its config.json (--set path=DIR)";
  std::string path;              // The directory with config.json.
  std::string flat_tokens_path;  // Training data: a token file,
  std::string text_path;         // or text (file, directory or pattern), tokenised on the fly.
  std::string tokenizer;         // Tokenizer of the text; empty: the one in `path`.
  Field<int64_t> mask_id;        // The mask token of a masked model, such as BERT.
  // The first sentinel of a model with an encoder, which is trained on corrupted spans: T5's is
  // 32099. seq_len is then the length of a text.
  Field<int64_t> first_sentinel_id;
  int64_t seq_len = 256;
  int64_t global_batch_size = 8;
  int64_t num_train_steps = 1000;
  int64_t warmup_steps = 100;
  double learning_rate = 1e-4;
  double min_learning_rate_ratio = 0.1;
  double weight_decay = 0.1;  // For matrices only.
  double dropout_rate = 0.0;  // For the residual and the embeddings.
  bool repeated = true;       // Loop over one block; false: every layer has its own nodes.
  DType compute_dtype = DType::kF32;
  FIELDS(path, flat_tokens_path, text_path, tokenizer, About(mask_id, kNotNegative),
         About(first_sentinel_id, kNotNegative), About(seq_len, kSize),
         About(global_batch_size, kSize), About(num_train_steps, kNotNegative),
         About(warmup_steps, kNotNegative), About(learning_rate, kNotNegative),
         About(min_learning_rate_ratio, "of the peak, at the end", kShare),
         About(weight_decay, "of matrices only", kNotNegative),
         About(dropout_rate, "of the residual and the embeddings", kRate), repeated, compute_dtype)

  ExperimentConfig build() const override;
};

namespace {

// The path in the error message of a run without data.
constexpr std::string_view kNoData = "(set text_path or flat_tokens_path)";

HfConfig config_of(const Pretrained& e) {
  if (e.path.empty())
    fail(
        "hf.Pretrained needs a Hugging Face directory with a config.json; give it with --set "
        "path=DIR");
  const std::string path = path_or_url(e.path, "path");
  const auto file = local_copy(path, [](auto n) { return n == "config.json"; }) / "config.json";
  HfConfig config = read_hf_config(read_file(file), file.string(),
                                   [&] { return has_tensor(path, "lm_head.weight"); });
  const Template<BasePositionEmbedding>& positions = config.model.lm.position_emb_tpl;
  if (!positions.holds<TrainablePositionalEmbedding::HParams>()) return config;
  const auto& table = positions.as<TrainablePositionalEmbedding::HParams>();
  const int64_t longest = table.max_seq_length.get() - table.first_row;
  if (e.seq_len > longest)
    fail("seq_len={} exceeds the {} positions of {}", e.seq_len, longest, file.string());
  return config;
}

Template<BaseModel> model(const Pretrained& e) {
  HfConfig config = config_of(e);
  config.model.lm.embedding_dropout_rate = e.dropout_rate;
  for (TransformerBlock::HParams& layer : config.model.layers)
    layer.residual_dropout_rate = e.dropout_rate;
  return model_of_hf(config, e.repeated ? StackStyle::kRepeated : StackStyle::kUnrolled);
}

bool is_masked(const HfConfig& config) {
  const Template<SequenceLayer>& attention_tpl = config.model.layers[0].attention_tpl;
  return attention_tpl.holds<DotProductAttention::HParams>() &&
         !attention_tpl.as<DotProductAttention::HParams>().causal;
}

Template<BaseInput> tokens(const Pretrained& e, std::string_view split, Labels labels) {
  const bool trains = split == "train";
  if (!e.flat_tokens_path.empty())
    return FlatTokensInput::HParams{.path = e.flat_tokens_path,
                                    .split = std::string(split),
                                    .global_batch_size = e.global_batch_size,
                                    .seq_len = e.seq_len,
                                    .labels = labels,
                                    .shuffle = trains ? Shuffle::kFull : Shuffle::kNone,
                                    .repeat = trains};
  return StreamingTextInput::HParams{
      .path = e.text_path.empty() ? std::string(kNoData) : e.text_path,
      .tokenizer = e.tokenizer.empty() ? e.path : e.tokenizer,
      .split = trains ? StreamSplit::kTrain : StreamSplit::kValidation,
      .global_batch_size = e.global_batch_size,
      .seq_len = e.seq_len,
      .labels = labels,
      .shuffle = trains,
      .repeat = trains};
}

// Error if an input that reads data lacks this id. Import and export read no batch.
bool has_id(const Pretrained& e, const Field<int64_t>& id, std::string_view knob,
            std::string_view why) {
  const bool has_data = !e.flat_tokens_path.empty() || !e.text_path.empty();
  if (!id.has() && has_data) fail("{} {} with --set {}=N", e.path, why, knob);
  return id.has();
}

Template<BaseInput> input(const Pretrained& e, std::string_view split) {
  const HfConfig config = config_of(e);
  const bool has_encoder = config.model.lm.encoder_tpl.has();
  if (!has_encoder && !is_masked(config)) return tokens(e, split, Labels::kNextToken);
  const Template<BaseInput> tokens_tpl = tokens(e, split, Labels::kShiftRight);
  if (has_encoder) {
    has_id(e, e.first_sentinel_id, "first_sentinel_id",
           "has an encoder and is trained on corrupted spans; give the id of its first sentinel "
           "(T5: 32099)");
    const int64_t last = config.model.lm.vocab_size.get() - 1;
    return SpanCorruptionInput::HParams{.input_tpl = tokens_tpl,
                                        .first_sentinel_id = e.first_sentinel_id.get_or(last),
                                        .global_batch_size = e.global_batch_size,
                                        .seq_len = e.seq_len};
  }
  if (!has_id(
          e, e.mask_id, "mask_id",
          "is a masked model, whose tokens attend to later ones; give the id of its mask token"))
    return tokens_tpl;
  return MaskedInput::HParams{.input_tpl = tokens_tpl,
                              .mask_id = e.mask_id.get(),
                              .global_batch_size = e.global_batch_size,
                              .seq_len = e.seq_len};
}

}  // namespace

ExperimentConfig Pretrained::build() const {
  const LinearRampupCosineDecay::HParams schedule{.warmup_steps = warmup_steps,
                                                  .min_ratio = min_learning_rate_ratio};
  const Learner::HParams learner{.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                                                 .schedule_tpl = schedule,
                                                                 .beta2 = 0.95,
                                                                 .weight_decay = weight_decay},
                                 .clip_gradient_norm_to_value = 1.0,
                                 .skip_lp_1d_vectors = true};
  return {.mesh = mesh(),
          .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute_dtype},
                                      .model = model(*this),
                                      .learner = learner,
                                      .train = {.num_train_steps = num_train_steps,
                                                .save_interval_steps = 250,
                                                .eval_interval_steps = 250}},
          .input = input(*this, "train"),
          .eval_inputs = {{"validation", input(*this, "validation")}}};
}

REGISTER_EXPERIMENT(hf, Pretrained)

}  // namespace tessera
