// SPDX-License-Identifier: Apache-2.0
// `runexp new NAME`: a plugin project of one's own, with an experiment, a layer, its test and an
// input, which builds and trains as it is. The files are those of cmake/new_project, where the
// project is called my_project.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct NewProjectFile {
  std::string_view name;
  std::string_view text;
};
std::vector<NewProjectFile> new_project_files();

// Writes the project into `folder`, which must not exist and whose last part is the project's name.
// Returns what to type next; `program` is the runexp to type it with.
std::string write_new_project(const std::filesystem::path& folder,
                              const std::filesystem::path& program);

}  // namespace tessera
