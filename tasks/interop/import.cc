// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/import.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/storage/storage.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tasks/interop/hf_copy.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/modes/first_step.h"

namespace tessera {
namespace {

constexpr int64_t kFileValuesAtATime = int64_t{1} << 22;  // Values of a file in memory.
constexpr size_t kMostListed = 8;

std::string listed(const std::vector<std::string>& lines) {
  if (lines.size() <= kMostListed) return fmt::format("{}", fmt::join(lines, "; "));
  const std::vector<std::string> first(lines.begin(), lines.begin() + kMostListed);
  return fmt::format("{}; and {} more", fmt::join(first, "; "), lines.size() - kMostListed);
}

// The names of norms in BERT's first files, which transformers still reads.
std::string with_old_norm(const std::string& name) {
  for (const auto& [now, before] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                    std::pair("LayerNorm.bias", "LayerNorm.beta")})
    if (name.ends_with(now)) return name.substr(0, name.size() - std::strlen(now)) + before;
  return name;
}

// Whether HfFiles reads this file of a repository.
bool is_of_model(std::string_view name) {
  return name == "config.json" || (name.find('/') == std::string_view::npos &&
                                   name.find(".safetensors") != std::string_view::npos);
}

// A tensor's name in the files: with or without the prefix of the whole model.
std::string name_in(const HfFiles& files, const std::string& name, std::string_view prefix) {
  const std::string bare = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const std::string& each : {name, bare, with_old_norm(name), with_old_norm(bare)})
    if (files.find(each) != nullptr) return each;
  return name;
}

// A tensor that our model lacks is accepted only if the file lacks it, too.
void check_constant(const HfFiles& files, const HfTensor& tensor, std::span<const float> values) {
  const auto other = std::find_if(values.begin(), values.end(), [&](float value) {
    return value != static_cast<float>(tensor.constant);
  });
  if (other != values.end())
    fail(
        "{}: '{}' has the value {}, but the experiment's model has no such weight, so expected {} "
        "everywhere; enable the weight in the model (use_bias, use_scale)",
        files.directory().string(), tensor.name, *other, tensor.constant);
}

// A shard of this process that holds values of a part.
struct Target {
  const HfPart& part;
  const Parameter& parameter;
  Shard shard;
};

std::vector<Target> targets_of(const HfTensor& tensor, RowRange rows, const ParameterTable& table,
                               Executor& executor) {
  std::vector<Target> targets;
  for (const HfPart& part : tensor.parts) {
    const Parameter& parameter = table.at(part.parameter);
    for (const Shard& shard : executor.shards(parameter.path))
      if (intersect(block_for(tensor, part, rows), shard.block))
        targets.push_back({part, parameter, shard});
  }
  return targets;
}

// Reads only rows that a shard of this process holds: the experts of other processes are not read.
void read_tensor(const HfFiles& files, const HfTensor& tensor, const ParameterTable& table,
                 Executor& executor, std::vector<float>* values) {
  const int64_t rows_at_a_time = std::max<int64_t>(1, kFileValuesAtATime / tensor.row_elements);
  for (int64_t row = 0; row < tensor.rows; row += rows_at_a_time) {
    const RowRange rows{row, std::min(tensor.rows, row + rows_at_a_time)};
    const std::vector<Target> targets = targets_of(tensor, rows, table, executor);
    if (targets.empty() && !tensor.parts.empty()) continue;
    values->resize(static_cast<size_t>(rows.size() * tensor.row_elements));
    files.read(tensor.name, row * tensor.row_elements, *values);
    if (tensor.parts.empty()) check_constant(files, tensor, *values);
    for (const Target& target : targets)
      target.shard.memory.map(HostAccess::kUpdate, [&](std::span<std::byte> bytes) {
        copy_from_hf(tensor, target.part, rows, *values,
                     {target.shard.block, target.parameter.type.dtype, bytes});
      });
  }
}

// The values of a head that files hold beside a table to which their config.json ties it.
// transformers 5 does not tie them if they differ.
void require_copy(const HfFiles& files, const std::string& head, const HfTensor& tied) {
  std::vector<float> values, others;
  const int64_t at_a_time = std::min<int64_t>(kFileValuesAtATime, tied.elements());
  bool is_copy = files.find(head)->shape == tied.shape;
  for (int64_t first = 0; is_copy && first < tied.elements(); first += at_a_time) {
    values.resize(static_cast<size_t>(std::min(at_a_time, tied.elements() - first)));
    others.resize(values.size());
    files.read(tied.name, first, values);
    files.read(head, first, others);
    is_copy = values == others;
  }
  if (!is_copy)
    fail(
        "{}: config.json ties the head to the table of embeddings, but '{}' has other values than "
        "'{}'; set \"tie_word_embeddings\": false in config.json, or remove the tensor",
        files.directory().string(), head, tied.name);
}

void require_tied_head(const HfFiles& files, const std::vector<HfTensor>& tensors,
                       const ParameterTable& table) {
  for (const HfTensor& tensor : tensors) {
    if (tensor.parts.size() != 1 ||
        !table.at(tensor.parts[0].parameter).path.ends_with("softmax.w"))
      continue;
    for (const std::string& name : files.names())
      if (name != tensor.name && (name == "lm_head.weight" || name.ends_with("decoder.weight")))
        require_copy(files, name, tensor);
  }
}

class Import final : public BaseRun {
 public:
  Import(const RunContext& context, const ImportOptions& options)
      : setting_(context.setting),
        options_(options),
        processes_(context.processes),
        console_(console_of(setting_, processes_)),
        files_(local_copy(options.input, is_of_model)),
        tensors_(checked_tensors(context.config)) {
    // The files are valid: now an earlier run may be set aside and memory allocated.
    first_step_.emplace(context, "import into");
  }

  int run() override {
    if (setting_.dry_run) return said("can be imported as");
    first_step_->save([&](Executor& executor, const ParameterTable& table) {
      read_hf_weights(files_, tensors_, table, executor);
    });
    if (processes_.is_first()) {
      keep_hf_config(setting_.job_log_dir, without_quantization(files_.config_json()));
      if (tokenizer_) write_run_tokenizer(setting_.job_log_dir, *tokenizer_);
    }
    return said("are imported as");
  }

 private:
  // Lets decode mode use text before there is data. Error if a text may have an id without a row.
  void read_tokenizer(int64_t rows) {
    try {
      tokenizer_ = make_tokenizer(options_.input.string());
    } catch (const Error& error) {
      return console_.info(
          fmt::format("note: no tokenizer is saved with the run: {}", error.what()));
    }
    const std::string sizes =
        fmt::format("the tokenizer has {} ids, but the table of embeddings has {} rows",
                    tokenizer_->vocab_size(), rows);
    for (int64_t id = rows; id < tokenizer_->vocab_size(); ++id)
      if (tokenizer_->may_be_drawn(static_cast<int32_t>(id)) || id == tokenizer_->start_id())
        fail(
            "{}: {}, and texts may have id {}; use the model's own tokenizer, or give the table "
            "more rows (resize_token_embeddings of transformers)",
            options_.input.string(), sizes, id);
    if (tokenizer_->vocab_size() > rows)
      console_.info(fmt::format("note: {}; the ids beyond are special, texts lack them", sizes));
  }

  int said(std::string_view state) {
    console_.info(fmt::format(
        "{} tensors of {} {} step 0 of {}, for training, evaluation and decoding", tensors_.size(),
        options_.input.string(), state, setting_.job_log_dir.string()));
    return 0;
  }

  // Checks config.json against the experiment, and the files against both.
  std::vector<HfTensor> checked_tensors(const ExperimentConfig& config) {
    const std::string file = (options_.input / "config.json").string();
    const auto has_head = [&] { return files_.find("lm_head.weight") != nullptr; };
    const HfModel model = model_as_in(read_hf_config(files_.config_json(), file, has_head), config);
    const std::unique_ptr<BaseTask> task = config.task.instantiate();
    if (const std::string& other = task->train().init_from.directory; !other.empty())
      fail(
          "task.train.init_from.directory is {}, but --input also gives weights; set only one of "
          "them",
          other);
    const ParameterTable& table = task->model().parameters();
    if (const std::vector<std::string> others = weights_outside(table); !others.empty())
      fail(
          "{} has no values for {}; import with --exp=hf.Pretrained, then set task.train.init_from",
          options_.input.string(), fmt::join(others, ", "));
    read_tokenizer(model.theirs.lm.vocab_size.get());
    const auto tensors = match_hf_tensors(hf_tensors(model, table), files_, model);
    require_tied_head(files_, tensors, table);
    return tensors;
  }

  HfModel model_as_in(const HfConfig& file, const ExperimentConfig& config) {
    if (!file.unread.empty())
      console_.info(fmt::format("note: these members of config.json are not read: {}",
                                fmt::join(file.unread, ", ")));
    try {
      return hf_model_of(config, file);
    } catch (const Error& error) {
      fail(
          "{} does not match the experiment's model: {}. Change the experiment, or use "
          "--exp=hf.Pretrained, which follows config.json",
          options_.input.string(), error.what());
    }
  }

  RunSetting setting_;
  ImportOptions options_;
  ProcessGroup& processes_;
  Console console_;
  HfFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<HfTensor> tensors_;
  std::optional<FirstStep> first_step_;
};

}  // namespace

std::vector<HfTensor> match_hf_tensors(std::vector<HfTensor> wanted, const HfFiles& files,
                                       const HfModel& model) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  for (HfTensor& tensor : wanted) {
    tensor.name = name_in(files, tensor.name, hf_prefix(*model.family));
    known.insert(tensor.name);
    const SafetensorsTensor* found = files.find(tensor.name);
    if (found == nullptr) {
      problems.push_back(
          fmt::format("'{}' is missing{}", tensor.name, did_you_mean(tensor.name, files.names())));
    } else if (found->shape != tensor.shape) {
      problems.push_back(fmt::format("'{}' is {}, expected [{}]", tensor.name, found->text(),
                                     fmt::join(tensor.shape, " ")));
    }
  }
  // A tied head may be stored beside the embedding table, with the same values.
  if (!model.theirs.has_own_head()) known.insert("lm_head.weight");
  const auto is_ignored = [&](const std::string& name) {
    return model.family->is_ignored != nullptr && model.family->is_ignored(name, model.theirs);
  };
  for (const std::string& name : files.names())
    if (!known.contains(name) && !is_hf_leftover(name) && !is_ignored(name))
      problems.push_back(fmt::format("'{}' is not a tensor of this model", name));
  if (!problems.empty()) fail("{}: {}", files.directory().string(), listed(problems));
  return wanted;
}

void read_hf_weights(const HfFiles& files, const std::vector<HfTensor>& tensors,
                     const ParameterTable& table, Executor& executor) {
  std::vector<float> values;
  for (const HfTensor& tensor : tensors) read_tensor(files, tensor, table, executor, &values);
}

std::unique_ptr<BaseRun> import_run(const RunContext& context, const ImportOptions& options) {
  return std::make_unique<Import>(context, options);
}

}  // namespace tessera
