// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=quickstart.SourceLm
#include "experiments/quickstart/byte_lm.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/flat_tokens/text_input.h"
#include "inputs/mixture/mixture_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/norms/norms.h"
#include "plugins/registry.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/mup.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr double kInitScale = 0.02;

}  // namespace

Template<BaseModel> ByteLm::model() const {
  // As in GPT-2: the two outputs of a layer that are added to the residual have smaller weights.
  const WeightInit residual_init{InitKind::kGaussian,
                                 kInitScale / std::sqrt(2.0 * static_cast<double>(num_layers))};
  const DotProductAttention::HParams attention{.rotary_tpl = RotaryPositionEmbedding::HParams{},
                                               .output_init = residual_init};
  const FeedForward::HParams ffn{.activation_tpl = SiLU::HParams{},
                                 .use_gated_activation = true,
                                 .dropout_rate = dropout_rate,
                                 .down_init = residual_init};
  const TransformerBlock::HParams block{.attention_tpl = attention,
                                        .ffn_tpl = ffn,
                                        .norm_tpl = RmsNorm::HParams{},
                                        .residual_dropout_rate = dropout_rate};
  return LanguageModel::HParams{
      .lm_tpl = TransformerLm::HParams{
          .vocab_size = vocab_size,
          .model_dims = model_dims,
          .num_layers = num_layers,
          .num_heads = num_heads * model_dims / base_dims(),
          .hidden_dims = hidden_dims * model_dims / base_dims(),
          .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
          .final_ln_tpl = RmsNorm::HParams{},
          .embedding_dropout_rate = dropout_rate,
          .params_init = WeightInit{InitKind::kGaussian, kInitScale}}};
}

Learner::HParams ByteLm::learner() const {
  return {.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                          .schedule_tpl =
                                              LinearRampupCosineDecay::HParams{
                                                  .warmup_steps = warmup_steps,
                                                  .min_ratio = min_learning_rate_ratio},
                                          .beta2 = beta2,
                                          .weight_decay = weight_decay},
          .clip_gradient_norm_to_value = 1.0,
          .skip_lp_1d_vectors = true};
}

ExperimentConfig ByteLm::build() const {
  // Evaluation reads the corpus snapshot that the training input has written.
  const FlatTokensInput::HParams validation{.path = std::string(kCorpusSnapshot),
                                            .split = "validation",
                                            .global_batch_size = global_batch_size,
                                            .seq_len = seq_len,
                                            .shuffle = Shuffle::kNone,
                                            .repeat = false};
  SingleTask::HParams task{.dtypes = DTypePolicy{.compute = compute_dtype},
                           .model = model(),
                           .learner = learner(),
                           .train = {.num_train_steps = num_train_steps,
                                     .save_interval_steps = 250,
                                     .eval_interval_steps = 250,
                                     .sample = {.length = sample_length}}};
  task.mup_base = use_mup(task.model, model_dims, mup_base_dims);
  return {.mesh = mesh(),
          .task = task,
          .input = TextInput::HParams{.global_batch_size = global_batch_size, .seq_len = seq_len},
          .eval_inputs = {{"validation", validation}}};
}

void ByteLm::validate() const {
  Experiment::validate();
  const std::string_view knob = mup_base_dims > 0 ? "mup_base_dims" : "model_dims";
  if (num_heads < 1 || base_dims() % num_heads != 0)
    fail("num_heads={} does not divide {}={}; the nearest {} that it divides is {}", num_heads,
         knob, base_dims(), knob, nearest_multiple(base_dims(), std::max<int64_t>(1, num_heads)));
  for (const int64_t size : {num_heads, hidden_dims})
    if (size * model_dims % base_dims() != 0)
      fail(
          "mup_base_dims={}: num_heads={} or hidden_dims={} would not be whole at model_dims={}; "
          "change one of them",
          mup_base_dims, num_heads, hidden_dims, model_dims);
}

Sweep ByteLm::search() const {
  return grid({{"learning_rate", {5e-4, 1e-3, 2e-3}}, {"dropout_rate", {0.0, 0.1}}});
}

void ByteLm::shrink() {
  Experiment::shrink();
  num_layers = 2;
  num_heads = 4;
  model_dims = num_heads * 8;
  hidden_dims = 3 * model_dims;
  if (mup_base_dims > 0) mup_base_dims = model_dims / 2;
  seq_len = 32;
  global_batch_size = 8;
  num_train_steps = kSmokeSteps;
  warmup_steps = 2;
  if (sample_length > 0) sample_length = 16;
}

// Learns Tessera's own sources and docs, byte by byte, in a few minutes on two
// cores. Needs no data but this repository.
REGISTER_EXPERIMENT(quickstart, SourceLm, ByteLm,
                    "learns this repository's own sources and docs, byte by byte; needs no data") {
  // Many small steps suit a small corpus.
  seq_len = 128;
  global_batch_size = 16;
  num_train_steps = 1500;
  learning_rate = 2e-3;
  sample_length = 500;
}

// Any text file, given as --set input.path=FILE; its last tenth is the
// validation split. Sizes and schedule are those of nanoGPT's recipe for Shakespeare on a CPU.
REGISTER_EXPERIMENT(
    quickstart, CharLm, ByteLm,
    "learns any text: --set input.path=FILE (nanoGPT's recipe for Shakespeare on a CPU)") {
  seq_len = 64;
  global_batch_size = 12;
  num_train_steps = 2000;
  sample_length = 300;
}

// Learns a token file of `flat_tokens build`, given as --set tokens=FILE.h5,
// and scores its validation split. docs/data.md describes the whole way from text to bits per byte.
struct TokenLm : ByteLm {
  using Base = ByteLm;
  static constexpr std::string_view kSummary =
      "learns a token file: --set tokens=FILE.h5 --set vocab_size=N (docs/data.md)";
  TokenLm() {
    vocab_size = 8192;
    num_train_steps = 2000;
    sample_length = 100;
  }
  std::string tokens = "tokens.h5";
  FIELDS(tokens)

  ExperimentConfig build() const override {
    ExperimentConfig config = ByteLm::build();
    config.input = FlatTokensInput::HParams{
        .path = tokens, .global_batch_size = global_batch_size, .seq_len = seq_len};
    config.eval_inputs.at("validation").as<FlatTokensInput::HParams>().path = tokens;
    return config;
  }
};
REGISTER_EXPERIMENT(quickstart, TokenLm)

// Learns shards of text or JSON lines directly, tokenised on the fly; the
// validation split is chosen by a hash of each document's text. --set path=FILES, and --set
// tokenizer=FILE with its vocab_size.
struct StreamLm : ByteLm {
  using Base = ByteLm;
  static constexpr std::string_view kSummary =
      "learns shards of text or JSON lines without preparation: --set path='data/*.jsonl.gz'";
  std::string path = "data/*.jsonl*";  // A file, a folder or a pattern.
  std::string text_field = "text";
  std::string tokenizer = "bytes";
  double validation_fraction = 0.01;  // Fraction of documents.
  CorruptRecords broken_documents = CorruptRecords::kFail;
  // Without a limit, the whole corpus is read to find the validation split.
  int64_t max_eval_batches = 100;
  FIELDS(path, text_field, tokenizer, About(validation_fraction, "share of documents", kRate),
         broken_documents, About(max_eval_batches, {.min = 1, .also = -1}))

  ExperimentConfig build() const override {
    StreamingTextInput::HParams shards{.path = path,
                                       .tokenizer = tokenizer,
                                       .validation_fraction = validation_fraction,
                                       .global_batch_size = global_batch_size,
                                       .seq_len = seq_len,
                                       .text_field = text_field,
                                       .broken_documents = broken_documents};
    ExperimentConfig config = ByteLm::build();
    config.input = shards;
    shards.split = StreamSplit::kValidation;
    shards.shuffle = false;
    shards.repeat = false;
    shards.num_batches = max_eval_batches;
    config.eval_inputs = {{"validation", shards}};
    return config;
  }
};
REGISTER_EXPERIMENT(quickstart, StreamLm)

// A mixture of sources whose weights change during training, and the
// validation loss of each. The sources are synthetic, so that it runs without data; a source of
// token files is {"web", FlatTokensInput::HParams{.path = "web/*.h5", .shuffle = Shuffle::kEra}}.
struct MixtureLm : ByteLm {
  using Base = ByteLm;
  static constexpr std::string_view kSummary =
      "learns a mixture of synthetic sources whose weights change at --set reversal_begins=STEP";
  int64_t reversal_begins = 128;  // The step from which reversal is in the mixture.
  int64_t block_size = 1024;
  FIELDS(About(reversal_begins, "the step from which reversal is in the mixture", {.min = 1}),
         About(block_size, kSize))

  MixtureLm() {
    num_layers = 2;
    model_dims = 64;
    hidden_dims = 192;
    seq_len = 64;
    num_train_steps = 400;
    warmup_steps = 40;
  }

  void shrink() override {
    ByteLm::shrink();
    reversal_begins = 4;  // Within the steps of a smoke run.
    block_size = 2 * global_batch_size;
  }

  ExperimentConfig build() const override {
    ExperimentConfig config = ByteLm::build();
    // All sources use the same alphabet, so that ids have the same meaning.
    const auto source = [](SyntheticTask task) {
      return SyntheticInput::HParams{.task = task, .num_letters = 20, .distance = 8};
    };
    MixtureInput::HParams mixture{
        .sources = {{"copy", source(SyntheticTask::kCopy)},
                    {"hidden_copy", source(SyntheticTask::kHiddenCopy)},
                    {"reversal", source(SyntheticTask::kReversal)}},
        .weights = {{"copy", 0.75}, {"hidden_copy", 0.25}, {"reversal", 0.0}},
        .stages = {{.step = reversal_begins,
                    .weights = {{"copy", 0.25}, {"hidden_copy", 0.25}, {"reversal", 0.5}}}},
        .block_size = block_size,
        .global_batch_size = global_batch_size,
        .seq_len = seq_len};
    config.input = mixture;
    // Validation: another seed, equal weights, and enough batches to distinguish the losses.
    mixture.name = "validation";
    mixture.weights = {{"copy", 1.0}, {"hidden_copy", 1.0}, {"reversal", 1.0}};
    mixture.stages.clear();
    mixture.num_batches = 16;
    mixture.seed = 4321;
    config.eval_inputs = {{"validation", mixture}};
    return config;
  }
};
REGISTER_EXPERIMENT(quickstart, MixtureLm)

}  // namespace tessera
