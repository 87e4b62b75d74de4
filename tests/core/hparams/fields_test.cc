// SPDX-License-Identifier: Apache-2.0
// FIELDS, Field and Required.
#include "core/hparams/fields.h"

#include "core/hparams/tree.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using sample::Model;

enum class Task { kCopy, kHiddenCopy, kGpt2 };

// Far more members than any layer has.
struct Wide {
  static constexpr std::string_view kName = "Wide";
  int64_t a0 = 0, a1 = 1, a2 = 2, a3 = 3, a4 = 4, a5 = 5, a6 = 6, a7 = 7, a8 = 8, a9 = 9;
  int64_t b0 = 0, b1 = 1, b2 = 2, b3 = 3, b4 = 4, b5 = 5, b6 = 6, b7 = 7, b8 = 8, b9 = 9;
  int64_t c0 = 0, c1 = 1, c2 = 2, c3 = 3, c4 = 4, c5 = 5, c6 = 6, c7 = 7, c8 = 8, c9 = 9;
  int64_t d0 = 0, d1 = 1, d2 = 2, d3 = 3, d4 = 4, d5 = 5, d6 = 6, d7 = 7, d8 = 8, d9 = 39;
  FIELDS(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2,
         c3, c4, c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)
};

struct Forgetful {
  int64_t listed = 0;
  std::optional<std::string> also_listed;
  bool forgotten = false;
  FIELDS(listed, also_listed)
};

struct Last {
  std::string first;
  std::optional<double> last_one;
  FIELDS(first)
};

struct Everything {
  bool flag = false;
  std::string text;
  std::optional<std::string> maybe_text;
  std::optional<std::vector<int64_t>> maybe_list;
  Field<Template<sample::Unary>> field_of_template;
  std::map<std::string, Template<sample::Unary>> map;
  sample::Rule nested;
  FIELDS(flag, text, maybe_text, maybe_list, field_of_template, map, nested)
};

struct Knobs {
  int64_t width = 4;
  FIELDS(width)
  virtual ~Knobs() = default;
};
struct MoreKnobs : Knobs {
  using Base = Knobs;
  int64_t depth = 2;
  FIELDS(depth)
};

struct Shared {
  static constexpr bool kInlined = true;
  double rate = 0.5;
  Field<int64_t> seed;
  FIELDS(rate, seed)
};
struct Sharing {
  int64_t width = 4;
  Shared shared;
  bool last = false;
  FIELDS(width, shared, last)
};

struct Hiding {
  Shared shared;
  double rate = 0.5;
  FIELDS(shared, rate)
};

struct HidingKnobs : Knobs {
  using Base = Knobs;
  double width = 0.5;
  FIELDS(width)
};

TEST_CASE("FIELDS gives names and members in order") {
  std::vector<std::string> names;
  const Wide wide;
  int64_t last = 0;
  visit_fields(wide, [&](std::string_view name, int64_t member, auto*) {
    names.emplace_back(name);
    last = member;
  });
  REQUIRE(names.size() == 40);
  REQUIRE(names.front() == "a0");
  REQUIRE(names.back() == "d9");
  REQUIRE(last == 39);
}

template <typename P>
constexpr size_t listed() {
  return detail::count_names(P::field_names());
}

TEST_CASE("Members of an aggregate are counted, so that an omission is noticed") {
  // visit_fields checks that these are equal; for Forgetful it would not compile.
  STATIC_REQUIRE(detail::arity<Wide>() == listed<Wide>());
  STATIC_REQUIRE(detail::arity<Everything>() == listed<Everything>());
  STATIC_REQUIRE(detail::arity<Model::HParams>() == listed<Model::HParams>());
  STATIC_REQUIRE(detail::arity<sample::ReLU::HParams>() == 0);
  STATIC_REQUIRE(detail::arity<Forgetful>() == listed<Forgetful>() + 1);
}

TEST_CASE("A member missing in FIELDS is found by name") {
  STATIC_REQUIRE(detail::first_unlisted<Forgetful>() == "forgotten");
  STATIC_REQUIRE(detail::first_unlisted<Last>() == "last_one");
}

TEST_CASE("Fields of a derived struct follow those of its base") {
  std::vector<std::string> names;
  MoreKnobs knobs;
  visit_fields(knobs, [&](std::string_view name, int64_t&, auto*) { names.emplace_back(name); });
  REQUIRE(names == std::vector<std::string>{"width", "depth"});
}

TEST_CASE("the fields of an inlined member are those of the struct that holds it") {
  const Sharing sharing{.width = 8, .shared = {.rate = 0.25}};
  const Tree tree = to_tree(sharing);
  REQUIRE(tree.keys == std::vector<std::string>{"width", "rate", "seed", "last"});
  Sharing read;
  from_tree(tree, read);
  REQUIRE(read.shared.rate == 0.25);
  set_path(read, "seed", "7");
  REQUIRE(read.shared.seed.get() == 7);
  REQUIRE(error_of([&] { set_path(read, "shared.rate", "1"); }) != "no error");
  STATIC_REQUIRE(detail::arity<Sharing>() == listed<Sharing>());
}

TEST_CASE("a field may not have the name of a field of the base or of an inlined struct") {
  REQUIRE_THAT(
      error_of([] { to_tree(Hiding{}); }),
      Catch::Contains("Hiding has two fields called 'rate': its own, and one of its base or "
                      "of an inlined struct; rename its own"));
  REQUIRE_THAT(error_of([] { to_tree(HidingKnobs{}); }),
               Catch::Contains("HidingKnobs has two fields called 'width'"));
}

TEST_CASE("a Field knows whether and where it was set") {
  Field<double> rate;
  REQUIRE_FALSE(rate.has());
  REQUIRE(rate.get_or(2.5) == 2.5);
  REQUIRE(error_of([&] { rate.get(); }) ==
          "an unset field was read; set it, or read it with get_or(…)");
  rate = 1;  // An integer may be assigned to a double.
  const uint32_t line = __LINE__ - 1;
  REQUIRE(rate.get() == 1.0);
  REQUIRE(rate.provenance().origin == Origin::kExperiment);
  REQUIRE(rate.provenance().site.line == line);
  REQUIRE(rate.provenance().text() == fmt::format("tests/core/hparams/fields_test.cc:{}", line));
  rate.reset();
  REQUIRE_FALSE(rate.has());
  STATIC_REQUIRE_FALSE(std::is_convertible_v<double, Field<int64_t>>);
}

TEST_CASE("A Field set by a designated initialiser cites that line") {
  const Model::HParams p{.vocab_size = 7, .dtypes = DTypePolicy{.compute = DType::kBF16}};
  REQUIRE(p.vocab_size.provenance().site.line == __LINE__ - 1);
  REQUIRE(p.dtypes.get().compute == DType::kBF16);
}

TEST_CASE("enumerators are named after themselves, unless a table beside them says otherwise") {
  REQUIRE(enum_names(Task{}).size() == 3);
  REQUIRE(enum_name(Task::kCopy) == "copy");
  REQUIRE(enum_name(Task::kHiddenCopy) == "hidden_copy");
  REQUIRE(enum_name(Task::kGpt2) == "gpt2");
  REQUIRE(enum_name(sample::Padding::kSame) == "same");
}

}  // namespace
}  // namespace tessera
