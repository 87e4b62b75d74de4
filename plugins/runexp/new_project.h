// SPDX-License-Identifier: Apache-2.0
// `runexp new NAME`: creates a plugin project with an experiment, a layer, its test and an input,
// which builds and trains. The files are templates in cmake/new_project, where the project is
// called my_project.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

// Their texts by their names.
std::map<std::string_view, std::string_view> new_project_files();

// Writes the project into `folder`, which must not exist; its last part is the project's name.
// Returns the commands to run next; `program` is the path of runexp.
std::string write_new_project(const std::filesystem::path& folder,
                              const std::filesystem::path& program);

}  // namespace tessera
