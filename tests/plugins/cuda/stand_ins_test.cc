// SPDX-License-Identifier: Apache-2.0
// Tests the table of errors of the stand-ins for the driver and its libraries. It has every
// function with its errors and is generated from their sources. A change is reviewed as a diff of
// tests/golden/cuda_stand_ins.txt.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "plugins/cuda/device/driver.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"

namespace tessera::cuda {
namespace {

struct Source {
  std::string body;
  bool is_entry_point = false;
};
// Functions by name. Their definitions begin in the first column, or indented in a class.
using Sources = std::map<std::string, Source>;

// Returns the text without comments.
std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

Sources functions_of(const std::vector<std::string>& files) {
  // A type, a name and its parameters, then a body that ends with a brace at the same indentation.
  static const std::regex kBegin(
      "^(?:  )?(?:template <[^>]*> )?(?:\\[\\[\\w+\\]\\] )?(?:static )?[A-Za-z_][\\w:<>,&* ]*[ &*]"
      "(?:\\w+::)*(\\w+)\\([^;]*$");
  static const std::regex kPublicName("(cu|cublas|nccl|cudnn)[A-Z]\\w+");
  Sources functions;
  for (const std::string& file : files) {
    std::istringstream lines(
        without_comments(read_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / file)));
    std::string name, body, end;
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (name.empty() && std::regex_match(line, match, kBegin)) {
        name = match[1];
        end = (line.starts_with("  ") ? "  }" : "}");
        body.clear();
      }
      if (name.empty()) continue;
      body += line + "\n";
      if (line != end && line != end + ";" && !(body == line + "\n" && line.ends_with("}")))
        continue;
      functions[name].body += body;  // Joins functions of one name.
      functions[name].is_entry_point = std::regex_match(name, kPublicName);
      name.clear();
    }
  }
  return functions;
}

// Returns the errors of one body: "CUDA_ERROR_INVALID_VALUE: a fill that is not aligned".
std::set<std::string> own_errors(const std::string& body) {
  static const std::regex kError(
      "\\b((?:CUDA_ERROR|CUBLAS_STATUS|CUDNN_STATUS)_[A-Z_]+|nccl(?:Invalid|System|Internal|Remote)"
      "\\w+)\\b(?:,\\s*(?:fmt::format\\(\\s*)?((?:\"[^\"]*\"\\s*)+))?");
  std::set<std::string> errors;
  for (std::sregex_iterator at(body.begin(), body.end(), kError), end; at != end; ++at) {
    const std::string code = (*at)[1];
    if (code.ends_with("_SUCCESS")) continue;
    const std::string text = std::regex_replace((*at)[2].str(), std::regex("\"\\s*\"|\""), "");
    errors.insert(text.empty() ? code : code + ": " + text);
  }
  return errors;
}

// Adds the errors of a function and of the functions that it calls.
void add_errors(const Sources& functions, const std::string& name, std::set<std::string>& seen,
                std::set<std::string>& errors) {
  if (!seen.insert(name).second) return;
  const std::string& body = functions.at(name).body;
  errors.merge(own_errors(body));
  static const std::regex kCall("(?:^|[^\\w:])(?:State::|s\\.)?(\\w+)(?:<\\w+>)?\\(");
  for (std::sregex_iterator at(body.begin(), body.end(), kCall), end; at != end; ++at) {
    const std::string called = (*at)[1];
    const auto found = functions.find(called);
    if (found != functions.end() && !found->second.is_entry_point)
      add_errors(functions, called, seen, errors);
  }
}

std::set<std::string> errors_of(const Sources& functions, const std::string& name) {
  std::set<std::string> seen, errors;
  add_errors(functions, name, seen, errors);
  return errors;
}

// Returns the rows of the table, without errors of `call`, which most functions of the driver use.
std::string rows(const Sources& functions) {
  std::set<std::string> usual;
  if (functions.contains("call")) usual = errors_of(functions, "call");
  std::string text;
  const auto add = [&](const std::string& name, const std::set<std::string>& errors) {
    text += fmt::format("\n{}\n", name);
    for (const std::string& error : errors) text += fmt::format("  {}\n", error);
  };
  if (!usual.empty()) add("every function after cuInit that needs a context", usual);
  for (const auto& [name, function] : functions) {
    if (!function.is_entry_point) continue;
    std::set<std::string> errors = errors_of(functions, name);
    for (const std::string& each : usual) errors.erase(each);
    add(name, errors);
  }
  return text;
}

TEST_CASE("the errors of the stand-ins match the committed table") {
  const Sources driver =
      functions_of({"virtual_gpu/device_state.cc", "virtual_gpu/device_state.h",
                    "virtual_gpu/driver_device.cc", "virtual_gpu/driver_graphs.cc",
                    "virtual_gpu/driver_modules.cc", "virtual_gpu/driver_streams.cc"});
  // <cuda.h> renames some functions: cuMemAlloc_v2.
  Driver().for_each([&](const auto&, const std::string& symbol) {
    CAPTURE(symbol);
    const std::string name = symbol.substr(0, symbol.find("_v2"));
    REQUIRE(driver.contains(name));
    REQUIRE(driver.at(name).is_entry_point);
  });
  std::string table =
      "# What each function of the stand-ins refuses, from their sources. Written by\n"
      "# tests/plugins/cuda/stand_ins_test.cc with TESSERA_UPDATE_GOLDENS=1, see docs/testing.md\n";
  table += rows(driver);
  for (const std::string library : {"cublaslt", "cudnn", "nccl"})
    table += fmt::format("\n# fake_{}.cc\n{}", library,
                         rows(functions_of({fmt::format("plugins/cuda/fake_{}.cc", library)})));
  REQUIRE(golden_difference("cuda_stand_ins.txt", table) == "");
}

}  // namespace
}  // namespace tessera::cuda
