// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <typeinfo>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "inputs/checked_input.h"

namespace tessera {
namespace {

constexpr const char* kKeptConfig = "hf_config.json";

// Every TransformerLm below, by path.
using FoundModels = std::map<std::string, const Tree*>;

void find_language_models(const Tree& tree, const std::string& path, FoundModels* found) {
  if (tree.hparams != nullptr && *tree.hparams == typeid(TransformerLm::HParams))
    found->emplace(path, &tree);
  for (size_t i = 0; i < tree.items.size(); ++i)
    if (const std::string item = tree.item_path(path, i); !item.ends_with(".teacher_tpl"))
      find_language_models(tree.items[i], item, found);
}

// The longest sequence is part of config.json.
void set_max_positions(const ExperimentConfig& experiment, LayeredLm* model) {
  const int64_t length = sequence_length(*make_input(experiment.input));
  if (length == 0) fail("the batches of its input have no ids [\"batch seq\"]");
  for (TransformerBlock::HParams& layer : model->layers) {
    Template<RotaryPositionEmbedding>* const rotary_tpl = rotary_of(layer);
    if (rotary_tpl == nullptr || !rotary_tpl->has()) continue;
    auto& rotary = rotary_tpl->as<RotaryPositionEmbedding::HParams>();
    rotary.max_positions = rotary.max_positions.get_or(length);
  }
}

}  // namespace

LayeredLm layered_lm_of(const ExperimentConfig& experiment) {
  const Tree whole = resolved(to_tree(experiment));  // Unset sizes are inherited from above.
  FoundModels found;
  find_language_models(at_path(whole, "task"), "task", &found);
  if (found.size() != 1)
    fail("the model has {} TransformerLm, expected one, which models of transformers are",
         found.empty() ? "no" : std::to_string(found.size()));
  Template<TransformerLm> lm_tpl;
  from_tree(TreeReader{*found.begin()->second, found.begin()->first}, lm_tpl);
  LayeredLm model = layers_of(lm_tpl);
  set_max_positions(experiment, &model);
  return model;
}

HfModel hf_model_of(const ExperimentConfig& experiment, std::string_view model_type) {
  LayeredLm ours = layered_lm_of(experiment);
  std::optional<HfModel> found;
  const HfFamily* nearest = nullptr;
  std::vector<std::string> reasons;
  std::pair<bool, size_t> fewest;  // With layers of other classes, and how many reasons.
  std::vector<const HfFamily*> families = hf_families();
  if (!model_type.empty()) families = {&hf_family(model_type, "--family")};
  for (const HfFamily* family : families) {
    WrittenConfig written = write_hf_config(*family, ours);
    if (written.reasons.empty()) {
      const bool is_exact = differences(ours, written.model, Missing::kIsDifferent).empty();
      if (is_exact || !found)
        found = HfModel{family, ours, std::move(written.model), std::move(written.lines)};
      if (is_exact) return *found;
      continue;
    }
    const std::pair distance(written.has_other_parts, written.reasons.size());
    if (nearest != nullptr && distance >= fewest) continue;
    nearest = family;
    fewest = distance;
    reasons = std::move(written.reasons);
  }
  if (found) return *found;
  if (!model_type.empty())
    fail("this model is not a {} of transformers: {}", model_type, fmt::join(reasons, "; "));
  fail("this model is of no family of transformers that is known ({}), the nearest is {}: {}",
       hf_family_names(), nearest->model_type, fmt::join(reasons, "; "));
}

void keep_hf_config(const std::filesystem::path& run_directory, std::string_view text) {
  write_file_atomically(run_directory / kKeptConfig, text);
}

std::string kept_hf_config(const std::filesystem::path& run_directory) {
  const std::filesystem::path file = run_directory / kKeptConfig;
  return std::filesystem::exists(file) ? read_file(file) : "";
}

std::string with_dtype(const std::string& config_text, std::string_view dtype) {
  static const std::regex member(R"re(("(?:torch_)?dtype"\s*:\s*)"[^"]*")re");
  return std::regex_replace(config_text, member, fmt::format("$1\"{}\"", dtype));
}

std::string without_quantization(std::string text) {
  static const std::regex kMember(R"("quantization_config"\s*:\s*\{)");
  constexpr const char* kSpace = " \t\r\n";
  for (std::smatch found; std::regex_search(text, found, kMember);) {
    auto begin = static_cast<size_t>(found.position());
    size_t end = begin + static_cast<size_t>(found.length());
    bool in_string = false;
    for (int depth = 1; depth > 0; ++end) {
      if (text.at(end) == '"') in_string = !in_string;
      if (in_string && text[end] == '\\') ++end;
      if (!in_string) depth += (text[end] == '{') - (text[end] == '}');
    }
    // With the comma that follows, or else the one before.
    end = text.find_first_not_of(kSpace, end);
    if (text.at(end) == ',') {
      end = text.find_first_not_of(kSpace, end + 1);
    } else {
      begin = text.find_last_not_of(kSpace, begin - 1);
      if (text[begin] != ',') ++begin;
      end = text.find_last_not_of(kSpace, end - 1) + 1;
    }
    text.erase(begin, end - begin);
  }
  return text;
}

HfModel hf_model_of(const ExperimentConfig& experiment, const HfConfig& file) {
  HfModel model{.family = file.family,
                .ours = layered_lm_of(experiment),
                .theirs = layers_of(stacked(file.model, StackStyle::kRepeated))};
  std::vector<std::string> lines;
  const auto layers = static_cast<int64_t>(model.ours.layers.size());
  for (const SettingDifference& each : differences(model.ours, model.theirs, Missing::kIsAllowed))
    lines.push_back(fmt::format("{}: {} in config.json, {} in the experiment", each.name(layers),
                                each.second, each.first));
  if (!lines.empty()) fail("{}", fmt::join(lines, "; "));
  return model;
}

LanguageModel::HParams model_of_hf(const HfConfig& config, StackStyle style) {
  return {.lm_tpl = stacked(config.model, style)};
}

std::string hf_config_text(const HfModel& model, std::string_view dtype,
                           const HfSpecialIds& special) {
  const auto id = [](int64_t value) { return value < 0 ? "null" : std::to_string(value); };
  // The name of dtype up to version 5 of transformers, and the later one.
  std::vector<std::string> lines = {
      fmt::format("\"architectures\": [\"{}\"]", model.family->architecture),
      fmt::format("\"model_type\": \"{}\"", model.family->model_type),
      fmt::format("\"bos_token_id\": {}", id(special.begin)),
      fmt::format("\"eos_token_id\": {}", id(special.end)),
      "\"pad_token_id\": null",  // Defaults of transformers may exceed the vocabulary.
      fmt::format("\"torch_dtype\": \"{}\"", dtype),
      fmt::format("\"dtype\": \"{}\"", dtype)};
  // A member that the family states replaces its default.
  std::erase_if(lines, [&](const std::string& line) {
    const std::string name = line.substr(0, line.find(':') + 1);
    return std::ranges::any_of(model.lines,
                               [&](const std::string& each) { return each.starts_with(name); });
  });
  lines.insert(lines.end(), model.lines.begin(), model.lines.end());
  return fmt::format("{{\n  {}\n}}\n", fmt::join(lines, ",\n  "));
}

}  // namespace tessera
