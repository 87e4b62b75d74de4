// SPDX-License-Identifier: Apache-2.0
#include "tests/support/trial.h"

#include <cctype>

#include "core/base/error.h"

namespace tessera {

Trial::Trial(const Mesh& mesh, const std::vector<std::string>& types)
    : mesh_(mesh), scope_(graph_, mesh_, rules_) {
  const std::string names = "xyzuvw";
  for (size_t i = 0; i < types.size(); ++i) {
    inputs_.push_back(input(std::string(1, names[i]), InputKind::kBatch, parse_type(types[i])));
  }
}

std::string outcome(const Mesh& mesh, const std::vector<std::string>& types,
                    const Application& apply) {
  const Trial trial(mesh, types);
  std::string result;
  const std::string error = error_of([&] { result = apply(trial.inputs()).type().text(); });
  if (!result.empty()) return result;
  const size_t line = error.find(".cc:");
  if (line == std::string::npos) return error;
  return error.substr(error.find(": ", line) + 2);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string without_numbers(const std::string& text) {
  std::string plain;
  for (const char character : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(character)) != 0;
    if (!digit) plain += character;
    if (digit && (plain.empty() || plain.back() != '#')) plain += '#';
  }
  return plain;
}

}  // namespace tessera
