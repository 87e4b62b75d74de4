// SPDX-License-Identifier: Apache-2.0
// Writes the first batches of an experiment's input as raw int32, first the ids and then the labels
// of each batch, for an equal model in another framework: dump_batches EXPERIMENT COUNT FILE
// [path=value]...
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"

namespace tessera {
namespace {

void dump(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) fail("usage: dump_batches EXPERIMENT COUNT FILE [path=value]...");
  const ExperimentEntry entry = find_experiment(arguments[0], plugin_path({}));
  const ConfiguredExperiment configured =
      configure(entry, {arguments.begin() + 3, arguments.end()});
  const auto input = configured.config.input.instantiate();
  input->attach({});
  std::ofstream out(arguments[2], std::ios::binary);
  for (int i = 0; i < std::stoi(arguments[1]); ++i) {
    const Batch batch = *input->get_next();
    for (const char* name : {"ids", "labels"}) {
      const HostArray& array = batch.at(name);
      out.write(reinterpret_cast<const char*>(array.bytes.data()),
                static_cast<std::streamsize>(array.bytes.size()));
    }
  }
  if (!out.flush()) fail("cannot write {}", arguments[2]);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    tessera::dump({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dump_batches: %s\n", error.what());
    return 2;
  }
}
