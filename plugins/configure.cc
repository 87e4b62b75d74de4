// SPDX-License-Identifier: Apache-2.0
#include "plugins/configure.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/base/printable.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeading = "# ";  // Before the name in hparams.toml.

struct Setting {
  std::string path;
  std::string text;
};

Setting split_setting(const std::string& given) {
  const size_t equals = given.find('=');
  if (equals == std::string::npos || equals == 0)
    fail("--set {}: expected path=value, such as task.train.num_train_steps=100", shortened(given));
  return {given.substr(0, equals), given.substr(equals + 1)};
}

// The devices of a shape, which may be invalid.
int64_t devices_of(const std::vector<int64_t>& shape) {
  int64_t devices = 1;
  for (const int64_t size : shape)
    devices = std::min(devices * std::clamp<int64_t>(size, 1, kMaxDevices), kMaxDevices);
  return devices;
}

// A shape with one size per axis and as many devices as in the given shape.
std::string example_shape(const MeshConfig& mesh, const std::vector<int64_t>& given) {
  const bool fits = given.size() == mesh.axis_names.size();
  return fmt::format(
      "{}", fmt::join(fits ? given : shape_along_data(mesh.axis_names, devices_of(given)), ","));
}

void set_knob(const ExperimentEntry& entry, Experiment& experiment, const Setting& setting,
              const std::string& given) {
  Tree knobs = entry.knobs(experiment);
  put_at_path(knobs, setting.path, Tree::typed(setting.text, {Origin::kCommandLine, {}, given}));
  entry.read_knobs(TreeReader{knobs, ""}, experiment);
}

constexpr std::string_view kSmokeFlag = "--smoke";
constexpr std::string_view kStepsKnob = "num_train_steps";

// The experiment before --set.
std::shared_ptr<Experiment> make_experiment(const ExperimentEntry& entry, RecipeSize size) {
  std::shared_ptr<Experiment> experiment = entry.make();
  if (size == RecipeSize::kFull) return experiment;
  calling(*experiment, "shrink()", [&] { experiment->shrink(); });
  Tree knobs = entry.knobs(*experiment);
  if (Tree* steps = knobs.find(kStepsKnob);
      steps != nullptr && steps->kind == Tree::Kind::kInt && steps->integer > kSmokeSteps) {
    steps->integer = kSmokeSteps;
    entry.read_knobs(TreeReader{knobs, ""}, *experiment);
  }
  return experiment;
}

// What --smoke sets beside the knobs: batches of an evaluation, and steps if no knob has them.
std::vector<Setting> settings_of_smoke(const ExperimentEntry& entry, const Experiment& experiment) {
  const Tree config = to_tree(experiment.config());
  std::vector<Setting> settings;
  const auto limit = [&](std::string_view name, int64_t most) {
    const Tree* node = &config;
    for (const std::string_view part : {std::string_view("task"), std::string_view("train"), name})
      if (node = node->find(part); node == nullptr) return;
    if (node->integer < 0 || node->integer > most)
      settings.push_back({fmt::format("task.train.{}", name), std::to_string(most)});
  };
  if (entry.knobs(experiment).find(kStepsKnob) == nullptr) limit(kStepsKnob, kSmokeSteps);
  limit("eval_loop_num_batches", 16);
  return settings;
}

// Notes for each knob that differs from the experiment's own value that --smoke has set it.
void note_smoke(const Tree& usual, Tree& knobs) {
  for (size_t i = 0; i < knobs.items.size(); ++i) {
    const Tree* before = usual.find(knobs.keys[i]);
    if (before != nullptr && same_value(*before, knobs.items[i])) continue;
    knobs.items[i].is_default = false;
    knobs.items[i].provenance = {Origin::kFlag, {}, std::string(kSmokeFlag)};
  }
}

// Every experiment has the shape knobs, but its build() may ignore them. Error if the configuration
// would be the same without the knob.
void check_shapes_are_used(const ExperimentEntry& entry, Experiment& experiment, RecipeSize size,
                           const ExperimentConfig& config) {
  const std::shared_ptr<Experiment> usual = make_experiment(entry, size);
  const auto check = [&](std::string_view knob, std::vector<int64_t>& shape,
                         const std::vector<int64_t>& usual_shape) {
    if (shape == usual_shape) return;
    const std::vector<int64_t> given = std::exchange(shape, usual_shape);
    bool is_used = true;
    try {
      is_used = !same_value(to_tree(with_all_evals(experiment.config())), to_tree(config));
    } catch (const Error&) {
      // build() needs a shape.
    }
    shape = given;
    if (is_used) return;
    fail(
        "{}=[{}] has no effect: {} builds a mesh with its own axes ({}) and ignores this knob; "
        "set their sizes with --set mesh.{}=[{}]",
        knob, fmt::join(given, ","), entry.name, fmt::join(config.mesh.axis_names, ", "), knob,
        example_shape(config.mesh, given));
  };
  check("ici_mesh_shape", experiment.ici_mesh_shape, usual->ici_mesh_shape);
  check("dcn_mesh_shape", experiment.dcn_mesh_shape, usual->dcn_mesh_shape);
}

// The path's first name is neither a knob nor a part of the configuration.
[[noreturn]] void fail_unknown(const ExperimentEntry& entry, const Tree& knobs, const Tree& config,
                               const Setting& setting) {
  std::vector<std::string> candidates = knobs.keys;
  candidates.insert(candidates.end(), config.keys.begin(), config.keys.end());
  const std::string first = setting.path.substr(0, setting.path.find_first_of(".["));
  std::string near = nearest(first, candidates);
  if (near.empty()) {
    near = path_ending_in(config, setting.path);
  } else {
    near += setting.path.substr(first.size());
  }
  fail("--set {}={}: {} has no knob or field '{}'{}", shortened(setting.path),
       shortened(setting.text), entry.name, shortened(first),
       near.empty() ? std::string("; --describe shows what it has")
                    : fmt::format("; did you mean '{}'?", near));
}

constexpr unsigned char kBackgrounds[2] = {0x55, 0xaa};

// The bytes of an experiment constructed in memory filled with `background`.
std::vector<unsigned char> bytes_over(const ExperimentEntry& entry, unsigned char background) {
  size_t space = entry.size + entry.alignment;
  std::vector<unsigned char> memory(space, background);
  void* place = memory.data();
  std::align(entry.alignment, entry.size, place, space);
  Experiment* experiment = entry.construct(place);
  const auto* begin = static_cast<unsigned char*>(place);
  std::vector<unsigned char> bytes(begin, begin + entry.size);
  experiment->~Experiment();
  return bytes;
}

// The bytes that construction writes: those that keep neither of two backgrounds. Pointers may
// differ between two objects.
std::vector<bool> written_bytes(const ExperimentEntry& entry) {
  const std::vector<unsigned char> first = bytes_over(entry, kBackgrounds[0]);
  const std::vector<unsigned char> second = bytes_over(entry, kBackgrounds[1]);
  std::vector<bool> written(entry.size);
  for (size_t i = 0; i < entry.size; ++i)
    written[i] = first[i] != kBackgrounds[0] || second[i] != kBackgrounds[1];
  return written;
}

// Experiment::validate(), whose errors then name the experiment and how its knobs were set.
void validate_knobs(const ConfiguredExperiment& configured, RecipeSize size,
                    const std::vector<std::string>& knob_sets) {
  std::vector<std::string> given;
  if (size == RecipeSize::kSmoke) given.emplace_back(kSmokeFlag);
  for (const std::string& set : knob_sets) given.push_back("--set " + set);
  const ErrorPrefix prefix(configured.entry.name);
  const ErrorContext context(shortened(fmt::format("{}", fmt::join(given, " "))));
  const Experiment& experiment = *configured.experiment;
  calling(experiment, "validate()", [&] { experiment.validate(); });
}

// Sets fields of the configuration, and checks the whole.
void set_fields(const std::vector<Setting>& settings, ConfiguredExperiment& configured) {
  for (const Setting& setting : settings) set_path(configured.config, setting.path, setting.text);
  configured.config = with_all_evals(configured.config);  // --set may add or remove datasets.
  // A shape needs a size for each axis, even if no mesh is made.
  planned_mesh(configured.config.mesh, devices_of(configured.config.mesh.dcn_mesh_shape));
  const Tree whole = resolved(configured.config_tree());
  check_required(whole, configured.entry.name);
  check_values(whole, configured.entry.name);
  check_registered(whole);
}

}  // namespace

Tree ConfiguredExperiment::config_tree() const {
  Tree tree = to_tree(config);
  tree.provenance = config_file.empty() ? Provenance{Origin::kExperiment, entry.site, {}}
                                        : Provenance{Origin::kFile, {}, config_file.string()};
  for (const std::string& given : overrides) note_command_line(tree, given);
  return tree;
}

ConfiguredExperiment configure(const ExperimentEntry& entry, const std::vector<std::string>& sets,
                               RecipeSize size) {
  check_knobs(entry);
  const std::shared_ptr<Experiment> experiment = make_experiment(entry, size);
  const Tree knobs = entry.knobs(*experiment);
  std::vector<Setting> later;
  ConfiguredExperiment configured;
  configured.experiment = experiment;
  configured.entry = entry;
  std::vector<std::string> knob_sets;
  for (const std::string& given : sets) {
    const Setting setting = split_setting(given);
    if (has_root(knobs, setting.path)) {
      set_knob(entry, *experiment, setting, given);
      knob_sets.push_back(given);
    } else {
      later.push_back(setting);
      configured.overrides.push_back(given);
    }
  }
  check_values(resolved(entry.knobs(*experiment)), entry.name);
  validate_knobs(configured, size, knob_sets);
  if (size == RecipeSize::kSmoke) {
    for (const Setting& each : settings_of_smoke(entry, *experiment)) {
      later.insert(later.begin(), each);
      configured.overrides.insert(configured.overrides.begin(),
                                  fmt::format("{} {}={}", kSmokeFlag, each.path, each.text));
    }
  }
  const Tree parts = to_tree(ExperimentConfig{});
  for (const Setting& setting : later)
    if (!has_root(parts, setting.path))
      fail_unknown(entry, knobs, to_tree(experiment->config()), setting);
  configured.knobs = entry.knobs(*experiment);
  configured.knobs.provenance = {Origin::kExperiment, entry.site, {}};
  if (size == RecipeSize::kSmoke) note_smoke(entry.knobs(*entry.make()), configured.knobs);
  for (const std::string& given : knob_sets) note_command_line(configured.knobs, given);
  configured.config = with_all_evals(experiment->config());
  check_shapes_are_used(entry, *experiment, size, configured.config);
  set_fields(later, configured);
  return configured;
}

StoredConfig read_config(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / "hparams.toml" : path;
  if (!fs::is_regular_file(file))
    fail("--config={}: {}; expected a run's directory or its hparams.toml{}", path.string(),
         fs::exists(file) ? "is not a file" : file.string() + " does not exist",
         did_you_mean_run(path));
  StoredConfig stored{.file = file, .text = read_file(file)};
  const std::string first = stored.text.substr(0, stored.text.find('\n'));
  if (!first.starts_with(kHeading) || first.find('.') == std::string::npos)
    fail(
        "--config={}: the first line of {} is '{}', expected the experiment's name, such as '# "
        "quickstart.SourceLm'",
        path.string(), file.string(), printable(first.substr(0, 80)));
  stored.experiment = first.substr(kHeading.size());
  return stored;
}

ConfiguredExperiment configure(const ExperimentEntry& entry, const StoredConfig& stored,
                               const std::vector<std::string>& sets) {
  ConfiguredExperiment configured;
  configured.experiment = entry.make();
  configured.entry = entry;
  configured.config_file = stored.file;
  configured.config = with_all_evals(parse_config(stored.text, stored.file.string()));
  const Tree knobs = entry.knobs(*configured.experiment), parts = to_tree(configured.config);
  std::vector<Setting> settings;
  for (const std::string& given : sets) {
    settings.push_back(split_setting(given));
    const std::string& path = settings.back().path;
    if (has_root(knobs, path) && !has_root(parts, path))
      fail(
          "--set {}: '{}' is a knob of {}, which has no effect on the configuration in {}; set a "
          "field of it, such as task.train.num_train_steps (--describe shows them), or use --exp",
          given, path, entry.name, stored.file.string());
    if (!has_root(parts, path)) fail_unknown(entry, Tree{}, parts, settings.back());
  }
  configured.overrides = sets;
  set_fields(settings, configured);
  return configured;
}

void check_knobs(const ExperimentEntry& entry) {
  std::vector<bool> unlisted = written_bytes(entry);
  const auto clear = [&unlisted](size_t offset, size_t size) {
    std::fill_n(unlisted.begin() + static_cast<std::ptrdiff_t>(offset), size, false);
  };
  clear(0, sizeof(void*));  // The vtable pointer.
  std::vector<KnobExtent> knobs = entry.extents(*entry.make());
  for (const KnobExtent& knob : knobs) clear(knob.offset, knob.size);
  const auto at = std::find(unlisted.begin(), unlisted.end(), true);
  if (at == unlisted.end()) return;
  const auto offset = static_cast<size_t>(at - unlisted.begin());
  const KnobExtent* before = nullptr;
  for (const KnobExtent& knob : knobs)
    if (knob.offset < offset && (before == nullptr || knob.offset > before->offset)) before = &knob;
  fail(
      "{}: {} has a member that its FIELDS does not list{}; list every member, or --set and "
      "hparams.toml miss it",
      entry.site.text(), entry.name,
      before == nullptr ? std::string(", before all others")
                        : fmt::format(", the next after '{}'", before->name));
}

}  // namespace tessera
