// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace tessera {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The type rules or the configuration refuse a composition while it is traced on its mesh. Any
// later error is a failure.
struct Refused {
  std::string message;
};

TracedStep traced_on_mesh(const Composition& composition) try {
  return traced(model_of(composition, Place::kMesh));
} catch (const Error& error) {
  throw Refused{error.what()};
}

double norm_of(const std::vector<double>& values) {
  double square = 0.0;
  for (const double value : values) square += value * value;
  return std::sqrt(square);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return kInfinite;
  double square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

// Numbers of one kind are comparable: "step 0: learner/m/" or "step 0: gradient_norm/".
std::string kind_of(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name.substr(0, name.find(": ")) : name.substr(0, slash);
}

// Gradients that are only rounding errors, of the size of the whole gradient's before clipping. A
// key bias adds the same constant to all scores of a query, which without rotary embeddings does
// not change the softmax. A router that chooses one expert only scales its result, which a norm
// after it removes.
bool vanishes(const std::string& name) {
  return name.ends_with(".key_bias") || name.ends_with(".router.w");
}

double gradient_norm_in(const std::string& name, const RunNumbers& numbers) {
  const auto found = numbers.find(name.substr(0, name.find(": ")) + ": grad_norm");
  return found != numbers.end() ? found->second.front() : 0.0;
}

// Rounding to fewer bits, and a choice of experts that depends on it, differ between meshes: only
// losses are compared then.
bool compares_losses(const Composition& composition) {
  return std::ranges::any_of(composition.features, [](const std::string& name) {
    const std::string_view group = feature(name).group;
    return group == "dtypes" || group == "experts" || name == "bf16_state" ||
           name == "stochastic_state";
  });
}

RunNumbers losses_of(const RunNumbers& numbers) {
  RunNumbers losses;
  for (const auto& [name, values] : numbers)
    if (name.ends_with(": loss") || values.empty()) losses[name] = values;
  return losses;
}

uint32_t checksum(const RunNumbers& numbers, uint32_t sum) {
  for (const auto& [name, values] : numbers) sum = crc32c(std::as_bytes(std::span(values)), sum);
  return sum;
}

}  // namespace

std::string kind_of_refusal(const std::string& message) {
  std::string text = message.substr(0, message.find(" [in "));
  text = std::regex_replace(text, std::regex("^[a-z_/]+\\.cc:[0-9]+: "), "");
  text = std::regex_replace(text, std::regex("\"[^\"]*\"|'[^']*'|lm\\.[a-z0-9_.\\[\\]]+"), "…");
  text = std::regex_replace(text, std::regex("(\\*?\\b(replica|data|mdl)\\b)+"), "axes");
  return std::regex_replace(text, std::regex("[0-9]+"), "#");
}

Difference difference(const RunNumbers& got, const RunNumbers& expected) {
  std::map<std::string, double> largest;
  for (const auto& [name, values] : expected) {
    double& norm = largest[kind_of(name)];
    norm = std::max(norm, norm_of(values));
  }
  Difference result;
  for (const auto& [name, values] : got)
    if (!expected.contains(name)) return {kInfinite, name};
  for (const auto& [name, values] : expected) {
    const auto found = got.find(name);
    if (found == got.end()) return {kInfinite, name};
    const double apart = distance(found->second, values);
    if (apart == 0.0) continue;
    double least = 1e-3 * largest[kind_of(name)];
    if (vanishes(name)) least = std::max(least, 1e-3 * gradient_norm_in(name, expected));
    const double error = apart / std::max(norm_of(values), least);
    if (!std::isfinite(error) || name.starts_with(kStart)) return {kInfinite, name};
    if (error > result.error) result = {error, name};
  }
  return result;
}

bool Verdict::fails() const {
  return error || f64.error > kF64Tolerance || standard.error > tolerance;
}

std::string Verdict::text() const {
  if (error) return "failed: " + *error;
  return refusal ? "refused: " + *refusal
                 : fmt::format("f64 {:.1e} ({}), standard {:.1e} of {:.0e} ({})", f64.error,
                               f64.name, standard.error, tolerance, standard.name);
}

Verdict verdict_on(const Composition& composition, Compared compared) {
  const bool only_losses = compares_losses(composition);
  Verdict verdict{.tolerance = only_losses ? 0.05 : 1e-3};
  try {
    const TracedStep on_mesh = traced_on_mesh(composition);
    const TracedStep on_one = traced(model_of(composition, Place::kOneDevice));
    const RunNumbers got = run_steps(on_mesh, Numerics::kF64);
    const RunNumbers expected = run_steps(on_one, Numerics::kF64);
    verdict.f64 = difference(got, expected);
    verdict.bits = checksum(expected, checksum(got, 0));
    if (compared == Compared::kF64) return verdict;
    const auto run = [&](const TracedStep& step) {
      const RunNumbers all = run_steps(step, Numerics::kStandard);
      return only_losses ? losses_of(all) : all;
    };
    verdict.standard = difference(run(on_mesh), run(on_one));
  } catch (const Refused& refused) {
    verdict.refusal = kind_of_refusal(refused.message);
  } catch (const Error& error) {
    verdict.error = error.what();
  }
  return verdict;
}

}  // namespace tessera
