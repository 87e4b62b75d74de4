// SPDX-License-Identifier: Apache-2.0
// Every member of every experiment must be in its FIELDS. Experiments are no aggregates, so the
// compiler cannot count; instead the bytes that construction writes are compared with those that
// the knobs cover.
#include <cstring>
#include <memory>

#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/registry.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

// Which bytes of an object construction sets: those that come out alike over two backgrounds.
std::vector<bool> written_bytes(const ExperimentEntry& entry) {
  const size_t room = entry.size + entry.alignment;
  const auto build = [&](unsigned char background, std::vector<unsigned char>& bytes) {
    const auto memory = std::make_unique<unsigned char[]>(room);
    std::memset(memory.get(), background, room);
    void* place = memory.get();
    size_t space = room;
    std::align(entry.alignment, entry.size, place, space);
    Experiment* experiment = entry.construct(place);
    bytes.assign(static_cast<unsigned char*>(place),
                 static_cast<unsigned char*>(place) + entry.size);
    experiment->~Experiment();
  };
  std::vector<unsigned char> first;
  std::vector<unsigned char> second;
  build(0x55, first);
  build(0xaa, second);
  std::vector<bool> written(entry.size);
  for (size_t i = 0; i < entry.size; ++i)
    // Addresses differ between two objects, but neither background survives in them.
    written[i] = first[i] == second[i] || first[i] != 0x55 || second[i] != 0xaa;
  return written;
}

// Bytes that construction sets and no knob covers, but for the pointer to the virtual functions.
int64_t omitted_bytes(const ExperimentEntry& entry) {
  std::vector<bool> written = written_bytes(entry);
  const auto forget = [&written](size_t offset, size_t size) {
    for (size_t i = offset; i < offset + size; ++i) written[i] = false;
  };
  forget(0, sizeof(void*));
  const auto experiment = entry.make();
  for (const KnobExtent& extent : entry.extents(*experiment)) forget(extent.offset, extent.size);
  return std::count(written.begin(), written.end(), true);
}

TEST_CASE("a knob that FIELDS omits is found") {
  load_plugins(find_plugins({fixture("good")}));
  REQUIRE(omitted_bytes(find_experiment("farm.Forgetful", {})) == sizeof(bool));
  REQUIRE(omitted_bytes(find_experiment("zoo.FastCat", {})) == 0);
}

TEST_CASE("no experiment of ours omits a knob") {
  const auto problems = load_plugins(find_plugins(plugin_path({})));
  REQUIRE(problems == std::vector<std::string>{});
  int64_t ours = 0;
  for (const ExperimentEntry& entry : registered_experiments()) {
    if (entry.plugin.find("/fixtures/") != std::string::npos) continue;
    ++ours;
    INFO(entry.name << ": a member is missing from FIELDS");
    REQUIRE(omitted_bytes(entry) == 0);
  }
  REQUIRE(ours >= 2);
}

}  // namespace
}  // namespace tessera
