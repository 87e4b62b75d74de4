// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/export.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/devices/iteration_space.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/io/storage/storage.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/interop/hf_copy.h"
#include "tasks/interop/hf_model.h"
#include "tasks/interop/hf_tokenizer.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/session/model_state.h"
#include "tasks/task/learner/learner.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kValuesAtATime = int64_t{1} << 22;  // Values that are copied at once.
constexpr const char* kNote = "tessera_export.json";

// The dtype of the files: our name, and PyTorch's.
struct FileType {
  SafetensorsType type;
  std::string_view name, torch;
};
constexpr FileType kFileTypes[] = {{SafetensorsType::kF32, "f32", "float32"},
                                   {SafetensorsType::kBF16, "bf16", "bfloat16"},
                                   {SafetensorsType::kF16, "f16", "float16"},
                                   {SafetensorsType::kF64, "f64", "float64"}};

FileType file_type(const std::string& given) {
  const std::string_view name = short_dtype_name(given);
  std::vector<std::string> names;
  for (const FileType& each : kFileTypes) {
    if (each.name == name) return each;
    names.emplace_back(each.name);
  }
  fail("--dtype={}: expected one of {}{}", given, fmt::join(names, ", "),
       did_you_mean(given, names));
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  if (is_url(directory)) {
    for (const ObjectInfo& object : storage_of(directory.native()).list(directory.string() + "/"))
      names.push_back(object.url.substr(directory.string().size() + 1));
  } else if (fs::exists(directory)) {
    for (const auto& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename().string());
  }
  return names;
}

// Names in an output directory that an export does not write.
std::vector<std::string> foreign_names(const fs::path& directory) {
  const std::vector<std::string> names = names_in(directory);
  std::set<std::string> ours = {kNote};
  if (std::ranges::find(names, kNote) != names.end()) {
    const std::string where = (directory / kNote).string();
    const Json note = parse_json(read_file(where), where);
    for (const Json& file : note.at("files").as_array()) ours.insert(file.as_string());
  }
  std::vector<std::string> foreign;
  std::ranges::copy_if(names, std::back_inserter(foreign),
                       [&](const std::string& name) { return !ours.contains(name); });
  std::sort(foreign.begin(), foreign.end());
  return foreign;
}

void check_output(const fs::path& directory) {
  if (!is_url(directory) && fs::exists(directory) && !fs::is_directory(directory))
    fail("--output={} is not a directory", directory.string());
  if (const auto foreign = foreign_names(directory); !foreign.empty())
    fail("--output={} holds '{}', which no export wrote{}; give a new or an empty directory",
         directory.string(), foreign[0],
         foreign.size() > 1 ? fmt::format(", and {} more", foreign.size() - 1) : "");
}

class Export final : public BaseRun {
 public:
  Export(const RunContext& context, const ExportOptions& options)
      : config_(context.config),
        setting_(context.setting),
        options_(options),
        console_(console_of(setting_, context.processes)),
        file_type_(file_type(options.dtype)),
        model_(model_to_export()),
        task_(config_.task.instantiate()),
        averaged_(task_->learner().averages() && task_->train().eval_on_ema),
        tensors_(hf_tensors(model_, task_->model().parameters())),
        checkpoint_(open_checkpoint()) {
    check_output(options.output);
    check_configuration();
    expect_known_weights(checkpoint_, task_->model().parameters());
    for (const Parameter& each : task_->model().parameters().parameters())
      checkpoint_.expect(path_of(each), each.type.dtype, sizes_of(each.type.axes));
  }

  int run() override {
    if (const std::string note = export_note(config_, NoteLength::kWhole); !note.empty())
      console_.info(note);
    if (setting_.dry_run) {
      console_.info(fmt::format("dry run: ready to write {} tensors of step {} to {}",
                                tensors_.size(), checkpoint_.info().step,
                                options_.output.string()));
      return 0;
    }
    const fs::path& output = options_.output;
    NewDirectory staging(is_url(output) ? cache_directory() / "exports" / output.filename()
                                        : output);
    const HfTokenizer tokenizer = hf_tokenizer_of(config_, setting_.job_log_dir);
    if (!tokenizer.remark.empty()) console_.info("note: " + tokenizer.remark);
    write_file_atomically(staging.place() / "config.json", config_text(tokenizer.special));
    std::vector<std::string> files = write_weights(staging.place());
    files.emplace_back("config.json");
    for (const auto& [name, content] : tokenizer.files) {
      write_file_atomically(staging.place() / name, content);
      files.push_back(name);
    }
    write_note(staging.place(), files);
    is_url(output) ? upload(staging.place(), files) : staging.finish();
    console_.info(fmt::format("step {} of {} ({} weights, {}) is in {}: {}",
                              checkpoint_.info().step, setting_.job_log_dir.string(),
                              averaged_ ? "averaged" : "trained", file_type_.name,
                              options_.output.string(), fmt::join(files, ", ")));
    return 0;
  }

 private:
  // What an earlier export has left is removed.
  void upload(const fs::path& place, std::vector<std::string> files) const {
    const std::string url = options_.output.string();
    upload_folder(place, url);
    files.emplace_back(kNote);
    for (const std::string& name : names_in(url))
      if (std::ranges::find(files, name) == files.end()) storage_of(url).remove(url + "/" + name);
  }

  // As imported, if the model is still that one.
  HfModel model_to_export() {
    if (!options_.family.empty()) return hf_model_of(config_, options_.family);
    imported_ = kept_hf_config(setting_.job_log_dir);
    if (!imported_.empty()) {
      try {
        const auto has_head = [&] { return layered_lm_of(config_).has_own_head(); };
        return hf_model_of(config_, read_hf_config(imported_, "hf_config.json", has_head));
      } catch (const Error& error) {
        console_.info(
            fmt::format("note: the model is not that of the import any more: {}", error.what()));
        imported_.clear();
      }
    }
    return hf_model_of(config_);
  }

  std::string config_text(const HfSpecialIds& special) const {
    return imported_.empty() ? hf_config_text(model_, file_type_.torch, special)
                             : with_dtype(imported_, file_type_.torch);
  }

  Checkpoint open_checkpoint() const {
    const CheckpointStore store(setting_.job_log_dir / "checkpoints");
    if (options_.checkpoint.kind == CheckpointChoice::Kind::kStep)
      return store.open(options_.checkpoint.step);
    const std::optional<int64_t> newest = store.newest();
    if (!newest)
      fail("{} holds no checkpoint to export; train first, or import into it",
           store.directory().string());
    return store.open(*newest);
  }

  // The checkpoint contains the run's configuration: with other knobs config.json would not match
  // the weights. If that one cannot be exported, the user has changed it as the error advised.
  void check_configuration() {
    if (checkpoint_.info().hparams.empty()) return;
    const ExperimentConfig trained =
        parse_config(checkpoint_.info().hparams, checkpoint_.directory().string() + ": hparams");
    LayeredLm before;
    try {
      before = hf_model_of(trained, model_.family->model_type).ours;
    } catch (const Error&) {
      const CheckpointInfo& info = checkpoint_.info();
      return console_.info(note_of_model_change(info.hparams, config_, info.step));
    }
    std::vector<std::string> lines;
    const auto layers = static_cast<int64_t>(before.layers.size());
    for (const SettingDifference& each : differences(before, model_.ours, Missing::kIsDifferent))
      lines.push_back(
          fmt::format("{}: {} there, {} here", each.name(layers), each.first, each.second));
    if (!lines.empty())
      fail("the experiment differs from the one that wrote {}: {}",
           checkpoint_.directory().string(), fmt::join(lines, "; "));
  }

  std::string path_of(const Parameter& parameter) const {
    return averaged_ ? ema_name(parameter.path) : parameter_array_path(parameter.path);
  }

  std::vector<std::string> write_weights(const fs::path& directory) {
    SafetensorsPlan plan{.max_file_bytes = options_.max_shard_bytes};
    for (const HfTensor& tensor : tensors_)
      plan.tensors.push_back({tensor.name, file_type_.type, tensor.shape, 0});
    SafetensorsWriter writer(directory, std::move(plan));
    for (const HfTensor& tensor : tensors_) write_tensor(tensor, writer);
    writer.finish();
    return writer.files();
  }

  // In row ranges if these are contiguous in our array; else the whole tensor.
  void write_tensor(const HfTensor& tensor, SafetensorsWriter& writer) {
    const ParameterTable& table = task_->model().parameters();
    const bool in_runs =
        tensor.parts.empty() ||
        follows_rows(tensor, tensor.parts[0], table.at(tensor.parts[0].parameter).type);
    const int64_t at_a_time =
        in_runs ? std::max<int64_t>(1, kValuesAtATime / tensor.row_elements) : tensor.rows;
    for (int64_t row = 0; row < tensor.rows; row += at_a_time) {
      const RowRange rows{row, std::min(tensor.rows, row + at_a_time)};
      values_.assign(static_cast<size_t>(rows.size() * tensor.row_elements),
                     static_cast<float>(tensor.constant));
      for (const HfPart& part : tensor.parts) read_part(tensor, part, rows);
      writer.write(values_);
    }
  }

  void read_part(const HfTensor& tensor, const HfPart& part, RowRange rows) {
    const Parameter& parameter = task_->model().parameters().at(part.parameter);
    const Region block = block_for(tensor, part, rows);
    bytes_.resize(static_cast<size_t>(block.elements() * dtype_bytes(parameter.type.dtype)));
    checkpoint_.read_block(path_of(parameter), block, bytes_);
    copy_to_hf(tensor, part, rows, {block, parameter.type.dtype, bytes_}, values_);
  }

  void write_note(const fs::path& directory, const std::vector<std::string>& files) const {
    JsonLine line;
    line.add("experiment", setting_.experiment)
        .add("step", checkpoint_.info().step)
        .add("weights", averaged_ ? "averaged" : "trained")
        .add_raw("files", json_list(files, json_quoted));
    write_file_atomically(directory / kNote, line.text() + "\n");
  }

  const ExperimentConfig& config_;
  RunSetting setting_;
  ExportOptions options_;
  Console console_;
  FileType file_type_;
  std::string imported_;  // The text of its config.json, or "".
  HfModel model_;
  std::unique_ptr<BaseTask> task_;
  bool averaged_;  // Export the moving average, as evaluation does.
  std::vector<HfTensor> tensors_;
  Checkpoint checkpoint_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

// The run of processes other than process 0.
class Bystander final : public BaseRun {
 public:
  int run() override { return 0; }
};

}  // namespace

std::unique_ptr<BaseRun> export_run(const RunContext& context, const ExportOptions& options) {
  if (!context.processes.is_first()) return std::make_unique<Bystander>();
  return std::make_unique<Export>(context, options);
}

}  // namespace tessera
