// SPDX-License-Identifier: Apache-2.0
// The registry of experiments. Registering only records; conflicts are reported when everything is
// loaded, because nothing may throw while a shared library is being loaded.
//
//   struct SourceLm : ByteLm { using Base = ByteLm; int64_t my_knob = 3; FIELDS(my_knob) … };
//   REGISTER_EXPERIMENT(quickstart, SourceLm)  // --exp=quickstart.SourceLm
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/plugin_call.h"
#include "core/hparams/convert.h"
#include "tasks/task/config/experiment.h"

// REGISTER_EXPERIMENT(family, Class) registers a struct. With a parent and a summary it declares
// the struct, too, for a variant without knobs of its own; the block that follows is the body of
// its constructor:
//   REGISTER_EXPERIMENT(quickstart, Wide, ByteLm, "with wider layers") { model_dims = 256; }
#define REGISTER_EXPERIMENT(family, Class, ...)                                     \
  __VA_OPT__(struct Class : ::tessera::VariantOf<__VA_ARGS__> { Class(); };)        \
  namespace {                                                                       \
  const ::tessera::ExperimentRegistrar<Class> kRegister##Class(#family "." #Class); \
  }                                                                                 \
  __VA_OPT__(Class::Class())

namespace tessera {

// The text of a literal, as an argument of a template.
template <size_t size>
struct SummaryText {
  consteval SummaryText(const char (&literal)[size]) { std::copy_n(literal, size, text); }
  char text[size];
};
template <typename Parent, SummaryText summary>
struct VariantOf : Parent {
  static constexpr std::string_view kSummary = summary.text;
};

// The byte range of one knob in an experiment.
struct KnobExtent {
  std::string name;
  size_t offset = 0;
  size_t size = 0;
};

struct ExperimentEntry {
  std::string name;     // "quickstart.SourceLm"
  std::string summary;  // The class's kSummary, or "".
  std::string plugin;   // The shared library's path; "" if linked in.
  SourceSite site;      // The line that registers it.
  size_t size = 0;
  size_t alignment = 0;
  Experiment* (*construct)(void* memory) = nullptr;
  std::unique_ptr<Experiment> (*make)() = nullptr;
  Tree (*knobs)(const Experiment& experiment) = nullptr;
  void (*read_knobs)(const TreeReader& reader, Experiment& experiment) = nullptr;
  std::vector<KnobExtent> (*extents)(const Experiment& experiment) = nullptr;
  bool has_shrink = false;  // The class or a base of it overrides Experiment::shrink().
  // Null if the class has no such member function.
  std::optional<MissingData> (*missing_data)(const Experiment& experiment,
                                             const ExperimentConfig& config) = nullptr;
};

void register_experiment(ExperimentEntry entry);

// Sorted by name.
std::vector<ExperimentEntry> registered_experiments();

// "experiment 'a.B' is registered twice: in x.so and in y.so", for each such name.
std::vector<std::string> experiment_clashes();

// While it lives, registrations are attributed to `plugin`.
class LoadingPlugin {
 public:
  explicit LoadingPlugin(std::string plugin);
  ~LoadingPlugin();
  LoadingPlugin& operator=(LoadingPlugin&&) = delete;  // Neither copied nor moved.
};

template <typename Class>
class ExperimentRegistrar {
 public:
  explicit ExperimentRegistrar(std::string_view name,
                               std::source_location where = std::source_location::current()) {
    detail::check_fields<Class>();
    ExperimentEntry entry;
    entry.name = name;
    entry.site = SourceSite::current(where);
    if constexpr (requires { Class::kSummary; }) entry.summary = Class::kSummary;
    entry.size = sizeof(Class);
    entry.alignment = alignof(Class);
    entry.construct = [](void* memory) -> Experiment* {
      return calling_class(typeid(Class), "", [&] { return new (memory) Class; });
    };
    entry.make = []() -> std::unique_ptr<Experiment> {
      return calling_class(typeid(Class), "", [] { return std::make_unique<Class>(); });
    };
    entry.knobs = [](const Experiment& experiment) {
      return to_tree(static_cast<const Class&>(experiment));
    };
    entry.read_knobs = [](const TreeReader& reader, Experiment& experiment) {
      from_tree(reader, static_cast<Class&>(experiment));
    };
    entry.extents = [](const Experiment& experiment) {
      const auto& object = static_cast<const Class&>(experiment);
      std::vector<KnobExtent> extents;
      visit_fields(object, [&](std::string_view knob, const auto& member, auto*) {
        const auto* begin = reinterpret_cast<const std::byte*>(&object);
        const auto* at = reinterpret_cast<const std::byte*>(&member);
        extents.push_back({std::string(knob), static_cast<size_t>(at - begin), sizeof(member)});
      });
      return extents;
    };
    // The type of an inherited member's pointer names the class that declares the member.
    entry.has_shrink = !std::is_same_v<decltype(&Class::shrink), void (Experiment::*)()>;
    if constexpr (requires(const Class& it, const ExperimentConfig& c) { it.missing_data(c); })
      entry.missing_data = [](const Experiment& experiment, const ExperimentConfig& config) {
        return calling(experiment, "missing_data()",
                       [&] { return static_cast<const Class&>(experiment).missing_data(config); });
      };
    register_experiment(std::move(entry));
  }
};

}  // namespace tessera
