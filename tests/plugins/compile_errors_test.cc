// SPDX-License-Identifier: Apache-2.0
// Compiler errors for mistakes in a plugin: the first error names the struct and what is missing,
// with few lines before it.
#include <chrono>
#include <sstream>
#include <string>

#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/compiler.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

constexpr const char* kOtherCompiler = "the messages expected are those of GCC";

constexpr std::string_view kLayer = R"(
#include "core/hparams/template.h"
namespace mine {
struct Base {};
struct Ffn : Base {
  struct HParams {
    using Instance = Ffn;
    static constexpr std::string_view kName = "Ffn";
    tessera::Required<int64_t> width;
    double rate = 0.5;
    FIELDS(width, rate)
  };
  explicit Ffn(const HParams&) {}
};
const tessera::TemplateRegistrar<Base, Ffn> kRegister;
const tessera::Template<Base> ffn_tpl = Ffn::HParams{};
}
)";

constexpr std::string_view kInlined = R"(
#include "core/hparams/convert.h"
namespace mine {
struct Shared {
  static constexpr bool kInlined = true;
  double rate = 0.5;
  int64_t width = 4;
  FIELDS(rate, width)
};
struct Ffn {
  Shared shared;
  FIELDS(shared)
};
const tessera::Tree tree = tessera::to_tree(Ffn{});
}
)";

constexpr std::string_view kAbstract = R"(
#include "layers/layer.h"
namespace mine {
struct Ffn : tessera::UnaryLayer {
  struct HParams {
    using Instance = Ffn;
    static constexpr std::string_view kName = "Ffn";
    FIELDS()
  };
  explicit Ffn(const HParams&) {}
  tessera::Tensor fprop(tessera::Tensor x, tessera::Tensor) const { return x; }
};
const tessera::TemplateRegistrar<tessera::UnaryLayer, Ffn> kRegister;
}
)";

constexpr std::string_view kExperiment = R"(
#include "plugins/registry.h"
namespace mine {
struct Small : tessera::Experiment {
  using Base = tessera::Experiment;
  int64_t width = 4;
  FIELDS(width)
  tessera::ExperimentConfig build() const override { return {}; }
};
struct Large : Small {
  using Base = Small;
  int64_t depth = 2;
  FIELDS(depth)
};
REGISTER_EXPERIMENT(mine, Large)
}
)";

// The code with one replacement.
std::string changed(std::string_view code, std::string_view from, std::string_view to) {
  std::string text(code);
  const size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

// The characters of a text without the lines that begin with a space, such as those of the source,
// which GCC 14 shows for each place.
size_t size_without_source(const std::string& text) {
  size_t size = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with(' ')) size += line.size() + 1;
  return size;
}

// The compiler's first error without its location, or "" if the code compiles. At most
// `most_before` characters, a few lines, may precede it.
std::string first_error(const std::string& code, size_t most_before = 850) {
  const TemporaryDirectory scratch;
  write_bytes(scratch / "code.cc", code);
  const std::string command =
      fmt::format("'{}' -std=c++20 -fsyntax-only -fmax-errors=1 -I'{}' -I'{}/generated' code.cc",
                  compiler(), TESSERA_SOURCE_DIR, TESSERA_BINARY_DIR);
  const std::string said = shell(scratch.path(), command, std::chrono::minutes(10)).errors;
  const size_t at = said.find("error: ");
  if (at == said.npos) return said;
  REQUIRE(size_without_source(said.substr(0, at)) < most_before);
  const size_t begin = at + std::string_view("error: ").size();
  std::string line = said.substr(begin, said.find('\n', begin) - begin);
  for (const std::string quote : {"\u2018", "\u2019"})  // Quotes in UTF-8 locales.
    for (size_t i = line.find(quote); i != line.npos; i = line.find(quote))
      line.replace(i, quote.size(), "'");
  return line;
}

TEST_CASE("an invalid HParams is a compile error of one line that names it") {
  if (!kCompilerIsGnu) return skip_test(kOtherCompiler);
  REQUIRE(first_error(std::string(kLayer)).empty());
  REQUIRE(first_error(changed(kLayer, "FIELDS(width, rate)", "")) ==
          "use of deleted function 'void tessera::FIELDS_is_missing() [with Struct = "
          "mine::Ffn::HParams]'");
  REQUIRE(first_error(changed(kLayer, "FIELDS(width, rate)", "FIELDS(rate)")) ==
          "use of deleted function 'void tessera::member_is_not_in_FIELDS() [with Struct = "
          "mine::Ffn::HParams; auto member = Name<6>{\"width\"}]'");
  const std::string registered =
      changed(kLayer, "const tessera::Template<Base> ffn_tpl = Ffn::HParams{};", "");
  REQUIRE(first_error(changed(registered, "using Instance = Ffn;", "")) ==
          "use of deleted function 'void "
          "tessera::Instance_is_missing_or_not_derived_from_Base() [with HParams = "
          "mine::Ffn::HParams; Base = mine::Base]'");
  REQUIRE(first_error(changed(kLayer, "static constexpr std::string_view kName = \"Ffn\";", ""))
              .empty());
  REQUIRE(first_error(changed(kLayer, "namespace mine", "namespace")) ==
          "use of deleted function 'void tessera::HParams_are_in_an_anonymous_namespace() [with "
          "HParams = {anonymous}::Ffn::HParams]'");
}

TEST_CASE(
    "an inlined struct whose FIELDS omits a member is a compile error of one line that names it") {
  if (!kCompilerIsGnu) return skip_test(kOtherCompiler);
  REQUIRE(first_error(std::string(kInlined)).empty());
  // It is found where the enclosing struct is visited, which takes more lines of context.
  REQUIRE(first_error(changed(kInlined, "FIELDS(rate, width)", "FIELDS(rate)"), 2400) ==
          "use of deleted function 'void tessera::member_is_not_in_FIELDS() [with Struct = "
          "mine::Shared; auto member = Name<6>{\"width\"}]'");
}

TEST_CASE("a wrong fprop signature is a compile error of one line that names the layer") {
  if (!kCompilerIsGnu) return skip_test(kOtherCompiler);
  const std::string right =
      changed(kAbstract, "tessera::Tensor x, tessera::Tensor", "tessera::Tensor x");
  REQUIRE(first_error(right).empty());
  REQUIRE(first_error(std::string(kAbstract)) ==
          "use of deleted function 'void tessera::Instance_is_abstract() [with HParams = "
          "mine::Ffn::HParams]'");
}

TEST_CASE("an experiment without a base or FIELDS is a compile error of one line that names it") {
  if (!kCompilerIsGnu) return skip_test(kOtherCompiler);
  REQUIRE(first_error(std::string(kExperiment)).empty());
  REQUIRE(first_error(changed(kExperiment, "using Base = Small;", "")) ==
          "use of deleted function 'void tessera::using_Base_is_missing() [with Struct = "
          "mine::Large; DirectBase = mine::Small]'");
  const std::string without_fields = changed(kExperiment, "FIELDS(depth)", "");
  const std::string missing =
      "use of deleted function 'void tessera::FIELDS_is_missing() [with Struct = mine::Large]'";
  REQUIRE(first_error(without_fields) == missing);
  const std::string without_both = changed(without_fields, "using Base = Small;", "");
  REQUIRE(first_error(without_both) == missing);
  // A variant that only changes values needs neither.
  REQUIRE(first_error(changed(without_both, "int64_t depth = 2;", "")).empty());
}

}  // namespace
}  // namespace tessera
