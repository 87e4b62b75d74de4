// SPDX-License-Identifier: Apache-2.0
// --search of runexp: searches (tasks/search), prints the result and writes its files.
#pragma once

#include <ostream>
#include <string>

#include "plugins/command_line.h"
#include "plugins/configure.h"

namespace tessera {

// Every candidate has the settings of the command line, then its own. Writes search.toml,
// search.json and search.svg to the directory of --job_log_dir, if one is given. Error if no
// candidate fits.
void run_search(const ConfiguredExperiment& configured, const CommandLine& line,
                SearchOptions options, std::ostream& out);

// What to add to an error of a run whose mesh does not suit its model: the nearest mesh that does,
// and the command that searches for the best one. "" if the mesh is not the reason.
std::string fitting_mesh_advice(const ConfiguredExperiment& configured, int64_t devices);

}  // namespace tessera
