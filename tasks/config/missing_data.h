// SPDX-License-Identifier: Apache-2.0
// Data that a run of an experiment would read and that are not there. An experiment whose data a
// user has to get may have a member function
//   std::optional<MissingData> missing_data(const ExperimentConfig& config) const;
// which is asked before a run that reads data, with what build() gave and --set changed. Without
// one, the inputs say what they do not find.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct MissingData {
  std::string what;                   // Which file, and where it was looked for.
  std::vector<std::string> commands;  // That make them, one a line, for a shell.
  std::string advice;                 // A sentence or two for after the commands; may be empty.
};

}  // namespace tessera
