// SPDX-License-Identifier: Apache-2.0
// Every experiment of the plugin libraries: its sizes, in tests/golden/recipes.txt and in the
// tables of docs/recipes.md; its plan on its own mesh, without devices; and a run of --smoke, which
// allocates what its plan says. Run with TESSERA_UPDATE_GOLDENS=1 to rewrite file and tables, with
// all plugins built.
//
// A new recipe is found in the registry. Nothing here knows a recipe's name.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/planner/plan.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

const std::string kPage = TESSERA_SOURCE_DIR "/docs/recipes.md";
constexpr size_t kSpread = 10;  // Recipes of the fast tier.

// All experiments of the build's own libraries, by name.
const std::vector<ExperimentEntry>& all_experiments() {
  static const std::vector<ExperimentEntry> entries = [] {
    const auto problems = load_plugins(find_plugins({own_plugins("experiments")}));
    std::vector<ExperimentEntry> found;
    for (const ExperimentEntry& entry : registered_experiments())
      if (entry.plugin.starts_with(own_plugins("experiments").string())) found.push_back(entry);
    for (const std::string& problem : problems) UNSCOPED_INFO(problem);
    REQUIRE(problems.empty());
    return found;
  }();
  return entries;
}

bool has_path(const Tree& tree) {
  const Tree* path = tree.find("path");
  return path != nullptr && path->is_text() && !path->text.empty();
}

// An experiment needs files of the user if it has a knob `path`, or if its input reads a path even
// with --smoke, which replaces data where it can. The table says so of each, so that a recipe which
// should generate its data is not left out unnoticed.
bool needs_files(const ExperimentEntry& entry) {
  if (entry.knobs(*entry.make()).find("path") != nullptr) return true;
  return has_path(to_tree(configure(entry, {}, RecipeSize::kSmoke).config.input));
}

const std::vector<ExperimentEntry>& recipes() {
  static const std::vector<ExperimentEntry> entries = [] {
    std::vector<ExperimentEntry> found = all_experiments();
    std::erase_if(found, needs_files);
    return found;
  }();
  return entries;
}

// "replica=1 data=4 mdl=1", an axis over several slices as "data=2*4", slices first; "any" if the
// mesh takes all devices.
std::string mesh_text(const MeshConfig& config) {
  if (config.ici_mesh_shape.empty()) return "any";
  const Mesh mesh = planned_mesh(config, 1);
  std::string text;
  for (const MeshAxis& axis : mesh.axes())
    text += fmt::format("{}{}={}{}", text.empty() ? "" : " ", axis.name,
                        axis.dcn == 1 ? "" : fmt::format("{}*", axis.dcn), axis.ici);
  return text;
}

// The page's: a mesh without its axes of one device, or "one device".
std::string without_ones(const std::string& mesh) {
  std::istringstream axes(mesh);
  std::string text;
  for (std::string axis; axes >> axis;)
    if (!axis.ends_with("=1")) text += (text.empty() ? "" : " ") + axis;
  return text.empty() ? "one device" : text;
}

struct RecipeRow {
  std::string family;
  std::string name;
  std::string summary;
  std::string mesh = "-";
  int64_t weights = 0;
  int64_t rows = 0;
  int64_t length = 0;
  int64_t steps = 0;
  bool is_described = false;  // false: it cannot be built without files.
  bool has_data = false;      // Also with --smoke.
};

RecipeRow row_of(const ExperimentEntry& entry) {
  INFO("recipe " << entry.name);
  RecipeRow row{.family = family_of(entry.name), .name = entry.name, .summary = entry.summary};
  row.has_data = needs_files(entry);
  std::optional<ConfiguredExperiment> configured;
  if (row.has_data) {
    try {
      configured = configure(entry, {});
    } catch (const Error&) {
      return row;
    }
  } else {
    configured = configure(entry, {});
  }
  const ExperimentConfig& config = configured->config;
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const Batch batch = global_specification(*config.input.instantiate());
  const std::vector<int64_t>& ids = batch.at("ids").shape;
  row.mesh = mesh_text(config.mesh);
  row.weights = task->model().parameters().elements();
  row.rows = ids.at(0);
  row.length = ids.at(1);
  row.steps = task->train().num_train_steps;
  row.is_described = true;
  return row;
}

const std::vector<RecipeRow>& rows() {
  static const std::vector<RecipeRow> all = [] {
    std::vector<RecipeRow> made;
    for (const ExperimentEntry& entry : all_experiments()) made.push_back(row_of(entry));
    return made;
  }();
  return all;
}

// "1,104,619,904"
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

// Returns the part of a summary before its colon, without the origin: "Llama2_7B" of "Pax's
// Llama2_7B: …". --list prints the whole summary; the headings of the page name the origin.
std::string what_it_is(const std::string& summary) {
  const size_t space = std::min(summary.find(' '), summary.size());
  const size_t begin = summary.substr(0, space).ends_with("'s") ? space + 1 : 0;
  return summary.substr(begin, std::min(summary.find(": "), summary.size()) - begin);
}

// Returns a family's table of the page.
std::string table_of(const std::string& family) {
  std::string text =
      "| recipe | weights | mesh | batch | what it is |\n"
      "|---|---:|---|---|---|\n";
  for (const RecipeRow& row : rows()) {
    if (row.family != family) continue;
    const std::string sizes = row.is_described
                                  ? fmt::format("{} | {} | {}×{}", grouped(row.weights),
                                                without_ones(row.mesh), row.rows, row.length)
                                  : std::string("of your files | any | ");
    text += fmt::format("| `{}` | {} | {} |\n", row.name, sizes, what_it_is(row.summary));
  }
  return text;
}

TEST_CASE("the sizes of every recipe are those of the table") {
  std::string text = "# recipe, weights, mesh (slices first), rows and tokens of a batch, steps\n";
  for (const RecipeRow& row : rows()) {
    text += row.is_described ? fmt::format("{}  {}  {}  {}x{}  {}{}\n", row.name, row.weights,
                                           row.mesh, row.rows, row.length, row.steps,
                                           row.has_data ? "  (needs files)" : "")
                             : fmt::format("{}  (needs files)\n", row.name);
  }
  const std::string difference = golden_difference("recipes.txt", text);
  INFO(difference);
  REQUIRE(difference.empty());
}

// Each table follows the line "<!-- recipes of FAMILY -->".
TEST_CASE("docs/recipes.md has a table of each family, with the sizes of its recipes") {
  const bool updates = std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr;
  std::string page = read_file(kPage);
  std::string last;
  for (const RecipeRow& row : rows()) {
    if (row.family == std::exchange(last, row.family)) continue;
    const std::string marker = fmt::format("<!-- recipes of {} -->\n", row.family);
    const size_t at = page.find(marker);
    INFO("docs/recipes.md has no table of the family " << row.family << "; add the line "
                                                       << marker);
    REQUIRE(at != std::string::npos);
    const size_t begin = at + marker.size();
    size_t end = begin;
    while (end < page.size() && page[end] == '|') end = page.find('\n', end) + 1;
    const std::string table = table_of(row.family);
    if (updates) page.replace(begin, end - begin, table);
    INFO("the table of " << row.family
                         << " in docs/recipes.md; TESSERA_UPDATE_GOLDENS=1 rewrites it");
    REQUIRE(page.substr(begin, table.size()) == table);
    REQUIRE(page[begin + table.size()] == '\n');
  }
  if (updates) write_file_atomically(kPage, page);
}

TEST_CASE("every recipe has a summary of one line, and says how it becomes small") {
  REQUIRE(all_experiments().size() >= 10);
  for (const ExperimentEntry& entry : all_experiments()) {
    INFO("recipe " << entry.name);
    CHECK(!entry.summary.empty());
    CHECK(entry.summary.size() <= 100);
    CHECK(entry.summary.find_first_of("|\n") == std::string::npos);
    CHECK((entry.has_shrink || needs_files(entry)));
  }
}

// Returns how many axes of the experiment's mesh have more than one device.
int64_t split_axes(const ExperimentEntry& entry) {
  const Mesh mesh = planned_mesh(configure(entry, {}).config.mesh, 1);
  return std::ranges::count_if(mesh.axes(), [](const MeshAxis& axis) { return axis.size() > 1; });
}

// Returns ten recipes that split many axes. The recipes of a family are sorted by their number of
// split axes, largest first, and families take turns.
std::vector<ExperimentEntry> spread() {
  struct Candidate {
    ExperimentEntry entry;
    int64_t axes = 0;  // Axes that the mesh splits.
    size_t turn = 0;
  };
  std::vector<Candidate> candidates;
  for (const ExperimentEntry& entry : recipes()) candidates.push_back({entry, split_axes(entry)});
  std::ranges::stable_sort(candidates, std::greater<>(), &Candidate::axes);
  std::map<std::string, size_t> turns;  // Turn of the next recipe of each family.
  for (Candidate& each : candidates) each.turn = turns[family_of(each.entry.name)]++;
  std::ranges::stable_sort(candidates, {}, &Candidate::turn);
  std::vector<ExperimentEntry> first;
  for (const Candidate& each : candidates)
    if (first.size() < kSpread) first.push_back(each.entry);
  return first;
}

// A CPU device that remembers how much was allocated from it.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  int64_t allocated() const { return allocated_; }

  std::string_view kind() const override { return device_->kind(); }
  std::string description() const override { return device_->description(); }
  double peak_flops(DType dtype) const override { return device_->peak_flops(dtype); }
  int64_t available_bytes() const override { return device_->available_bytes(); }
  DeviceAddress allocate(int64_t bytes) override {
    allocated_ += bytes;
    return device_->allocate(bytes);
  }
  void release(DeviceAddress memory, int64_t bytes) override { device_->release(memory, bytes); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return device_->prepare(graph, node);
  }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<Stream> make_stream(StreamUse use) override { return device_->make_stream(use); }
  std::unique_ptr<Event> make_event() override { return device_->make_event(); }
  void map(DeviceAddress memory, int64_t bytes, HostAccess access, const UseBytes& use) override {
    device_->map(memory, bytes, access, use);
  }
  bool is_asynchronous() const override { return device_->is_asynchronous(); }
  std::shared_ptr<std::byte[]> host_memory(int64_t bytes) override {
    return device_->host_memory(bytes);
  }

 private:
  std::unique_ptr<Device> device_;
  int64_t allocated_ = 0;
};

// The plan of any mesh needs one device, to ask about its kernels.
Plan plan_of(const ExperimentConfig& config) {
  const TemporaryDirectory directory;
  const auto devices = make_test_devices(1, 1);
  ProcessGroup alone;
  Session session(config, {.run_directory = directory.path(), .allocates = false},
                  pointers(devices), alone);
  return make_plan(session.compiled_step());
}

// The memory of a device adds up to the peak, which is within what is allocated.
void check_plan(const Plan& plan) {
  int64_t memory = 0;
  for (const auto& [kind, bytes] : plan.memory) {
    REQUIRE(bytes >= 0);
    memory += bytes;
  }
  REQUIRE(memory == plan.peak);
  REQUIRE(plan.peak > 0);
  REQUIRE(plan.peak <= plan.arena);
  REQUIRE(plan.flops_per_step > 0.0);
  REQUIRE((plan.devices > 1) == !plan.collectives.empty());
}

void check_own_plan(const ExperimentEntry& entry) {
  INFO("recipe " << entry.name);
  check_plan(plan_of(configure(entry, {}).config));
}

// The losses of all steps of a run, without its checkpoints and drawings.
std::vector<double> train(const ExperimentConfig& config, const std::vector<Device*>& devices) {
  const TemporaryDirectory directory;
  ProcessGroup alone;
  Session session(config,
                  {.run_directory = directory.path(),
                   .input_directory = directory.path(),
                   .devices = static_cast<int64_t>(devices.size())},
                  devices, alone);
  initialise_state(session.executor(), session.task().model().parameters(),
                   static_cast<uint64_t>(session.train().seed), 1);
  std::vector<double> losses;
  for (int64_t step = 0; step < session.train().num_train_steps; ++step) {
    const std::optional<Batch> batch = session.input().get_next();
    REQUIRE(batch.has_value());
    losses.push_back(session.train_program().run(*batch, step).loss);
  }
  return losses;
}

// A run of --smoke without what decodes: training samples and metrics of continuations need the
// data's tokenizer, so a plan, which needs no data, leaves their programs out.
ExperimentConfig smoke_config(const ExperimentEntry& entry) {
  ExperimentConfig config = configure(entry, {}, RecipeSize::kSmoke).config;
  for (auto& [name, dataset] : config.eval.datasets) dataset.predict_metrics.clear();
  set_path(config, "task.train.sample.length", "0");
  return config;
}

// Trained at its smallest size, a recipe allocates what its plan says.
void check_smoke(const ExperimentEntry& entry) {
  INFO("recipe " << entry.name);
  const ExperimentConfig config = smoke_config(entry);
  const Mesh mesh = planned_mesh(config.mesh, 1);
  for (const MeshAxis& axis : mesh.axes()) REQUIRE((axis.ici <= 2 && axis.dcn <= 2));
  const Plan plan = plan_of(config);
  check_plan(plan);

  std::vector<std::unique_ptr<CountingDevice>> devices;
  std::vector<Device*> in_order;
  for (std::unique_ptr<Device>& device : make_test_devices(mesh.num_devices(), 1)) {
    devices.push_back(std::make_unique<CountingDevice>(std::move(device)));
    in_order.push_back(devices.back().get());
  }
  const std::vector<double> losses = train(config, in_order);
  int64_t allocated = 0;
  for (const auto& device : devices) allocated = std::max(allocated, device->allocated());
  REQUIRE(allocated == plan.arena);
  REQUIRE(losses.size() == static_cast<size_t>(kSmokeSteps));
  for (const double loss : losses) {
    REQUIRE(std::isfinite(loss));
    REQUIRE(loss < 1.25 * losses.front());
  }
  REQUIRE(losses.back() != losses.front());
}

TEST_CASE("ten recipes are planned on their own meshes and trained at their smallest size") {
  const std::vector<ExperimentEntry> ten = spread();
  REQUIRE(ten.size() == std::min(kSpread, recipes().size()));
  for (const ExperimentEntry& entry : ten) {
    check_own_plan(entry);
    check_smoke(entry);
  }
}

TEST_CASE("every recipe is planned on its own mesh", "[full]") {
  for (const ExperimentEntry& entry : recipes()) check_own_plan(entry);
}

TEST_CASE("every recipe is trained at its smallest size", "[full]") {
  for (const ExperimentEntry& entry : recipes()) check_smoke(entry);
}

}  // namespace
}  // namespace tessera
