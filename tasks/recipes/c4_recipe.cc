// SPDX-License-Identifier: Apache-2.0
#include "tasks/recipes/c4_recipe.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/readers/text_files.h"
#include "inputs/streaming/streaming_text_input.h"
#include "tasks/recipes/recipe_data.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The message of a c4 experiment without data: commands that fetch C4. docs/recipes.md explains
// them, and a test runs them.

// Enough to start with: 10 of 1024 files with 1.5 billion tokens, and the validation files.
constexpr const char* kSomeFiles = "'en/c4-*.0000?-of-*.json.gz'";
constexpr const char* kFolder = "en";  // In the data set, and so in the download.
constexpr const char* kDownload = "hf download allenai/c4";

const std::string kAdvice =
    "See docs/recipes.md. Without data, --mode=plan shows what a step needs, and --set "
    "data=synthetic trains on synthetic sequences.";
const std::string kAdviceOnDownload =
    "They fetch the first 3 GB of C4's English text; the whole is 'en/*.json.gz', 305 GB. ";

// The folder of the files that the experiment reads or tokenises.
fs::path folder_of(const std::string& shards) {
  const fs::path folder = is_file_pattern(shards) ? pattern_root(shards) : fs::path(shards);
  return folder.empty() ? fs::path(".") : folder;
}

// The download folder for `hf`: `data` for data/en/*.json.gz.
fs::path download_folder(const std::string& shards) {
  const fs::path folder = folder_of(shards);
  const fs::path top = folder.filename() == kFolder ? folder.parent_path() : folder;
  return top.empty() ? fs::path(".") : top;
}

std::vector<std::string> commands_to_fetch(const std::string& shards) {
  const std::string top = download_folder(shards).string();
  std::vector<std::string> commands = commands_to_fetch_c4(top);
  if (folder_of(shards).filename() != kFolder)
    commands.push_back(fmt::format("mv {0}/{1}/*.json.gz {0}", shell_quoted(top), kFolder));
  return commands;
}

// The first file of the pattern: enough to train a tokenizer.
std::string first_of(const std::string& shards) {
  return (folder_of(shards) / "c4-train.00000-of-01024.json.gz").string();
}

}  // namespace

C4Recipe::C4Recipe() {
  num_layers = 24;
  model_dims = 2048;
  num_heads = 32;
  vocab_size = 32128;
  activation_tpl = GELU::HParams{.approximate = true};
  flat_tokens_path = "data/c4_en.h5";
  remat_policy = "save_dot_for_mlperf_200b";
  save_interval_steps = 1000;
  ici_mesh_shape = {1, 4, 2};
}

void C4Recipe::shrink() {
  Base::shrink();
  data = C4Data::kSynthetic;
  tokenizer = "bytes";
}

C4Gpt3Recipe::C4Gpt3Recipe() {
  seq_len = 2048;
  num_layers = 96;
  model_dims = 12288;
  num_heads = 96;
  vocab_size = 50257;
  tokenizer_size = 50257;
  tokenizer = "data/c4_en.50257.model";
  flat_tokens_path = "data/c4_en_50257.h5";
  use_repeated_layer = true;
  use_gpt3_layers();
  use_gpt3_optimizer();
  init_std = 0.006;
  softmax_init_std = 0.006;
  learning_rate = 6e-5;
  warmup_steps = 265;
  decay_end = 108'600;
  target_log_pplx = 2.69;
  remat_policy = "save_nothing";
  eval_interval_steps = 100;
  summary_interval_steps = 10;
  save_interval_steps = 100;
  save_max_to_keep = 10;
}

void C4Gpt3Recipe::use_mlperf_rule() {
  learning_rate.reset();
  warmup_steps.reset();
  decay_end.reset();
}

Template<BaseInput> C4Recipe::input(std::string_view split) const {
  constexpr int64_t kShuffledDocuments = 256;
  const bool train = split == "train";
  if (data == C4Data::kSynthetic) return generated_split(split, kTrainSeed, batch_size(), seq_len);
  if (data == C4Data::kShards)
    return StreamingTextInput::HParams{
        .path = train ? train_shards : validation_shards,
        .tokenizer = tokenizer,
        .split = StreamSplit::kAll,  // C4 has separate validation files.
        .name = std::string(split),
        .global_batch_size = batch_size(),
        .seq_len = seq_len,
        .labels = pax_rows ? Labels::kOneSegment : Labels::kShiftRight,
        .end_of_document = pax_rows ? EndOfDocument::kNone : EndOfDocument::kAuto,
        .shuffle = train,
        .shuffle_documents = train ? kShuffledDocuments : 1,
        .repeat = train,
        .seed = kTrainSeed};
  Template<BaseInput> tokens = Base::input(split);
  if (pax_rows) tokens.as<FlatTokensInput::HParams>().labels = Labels::kOneSegment;
  return tokens;
}

std::vector<std::string> commands_to_fetch_c4(const std::string& folder) {
  return {"pip install -U huggingface_hub",
          fmt::format("{} --repo-type dataset --local-dir {} --include {}", kDownload,
                      shell_quoted(folder), kSomeFiles)};
}

std::optional<MissingData> C4Recipe::missing_data(const ExperimentConfig& config) const {
  const bool reads_tokens = reads<FlatTokensInput::HParams>(config.input, flat_tokens_path);
  if (!reads_tokens && !reads<StreamingTextInput::HParams>(config.input, train_shards))
    return std::nullopt;
  const std::vector<std::string> fetch = commands_to_fetch(train_shards);
  std::vector<RecipeFile> sources = {{train_shards, "train_shards", fetch},
                                     {validation_shards, "validation_shards", fetch}};
  if (tokenizer != "bytes")
    sources.push_back(
        trained_tokenizer(tokenizer, std::min(tokenizer_size, vocab_size), first_of(train_shards)));
  std::vector<std::string> options = {"--validation=" + validation_shards};
  if (pax_rows) options.push_back("--end_of_document=none");
  const RecipeFile tokens = built_tokens(flat_tokens_path, tokenizer, options, train_shards);
  std::optional<MissingData> missing = reads_tokens ? missing_files(sources, {tokens}, kAdvice)
                                                    : missing_files({}, sources, kAdvice);
  const auto is_download = [](const std::string& command) {
    return command.starts_with(kDownload);
  };
  if (missing && std::ranges::any_of(missing->commands, is_download))
    missing->advice = kAdviceOnDownload + missing->advice;
  return missing;
}

}  // namespace tessera
