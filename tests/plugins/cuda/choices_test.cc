// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/choices.h"

#include <string>
#include <vector>

#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

const std::string kChoice = "0123abc";

bool accepts_all(const std::string&) { return true; }

// The choice that a process finds in the file, and whether it had to make one.
struct Found {
  std::optional<std::string> choice;
  bool chosen = false;
  std::string note;
};
Found find_in(const std::filesystem::path& file, const std::string& choice = kChoice,
              const AcceptsChoice& accepts = accepts_all,
              const std::string& key = "a GPU, m=1 n=2") {
  Found found;
  ChoiceCache cache(file, [&](const std::string& text) { found.note = text; });
  found.choice = cache.find(key, accepts, [&] {
    found.chosen = true;
    return choice;
  });
  return found;
}

TEST_CASE("a choice is made once, and found in the file later") {
  const TemporaryDirectory directory;
  const auto file = directory / "cache/tessera/algorithms";
  REQUIRE(find_in(file).chosen);
  const Found later = find_in(file, "another");
  REQUIRE_FALSE(later.chosen);
  REQUIRE(later.note.empty());
  REQUIRE(later.choice == kChoice);
  REQUIRE(find_in(file, "another", accepts_all, "another GPU").chosen);
  REQUIRE_FALSE(find_in(file).chosen);  // Both are in the file.
}

TEST_CASE("a choice that the library does not accept is made again") {
  const TemporaryDirectory directory;
  const auto file = directory / "algorithms";
  find_in(file);
  const std::string other = "9";
  const Found found = find_in(file, other, [](const std::string& choice) { return choice == "9"; });
  REQUIRE(found.chosen);
  REQUIRE(find_in(file).choice == other);
}

TEST_CASE("a damaged cache of choices is ignored and written again") {
  const TemporaryDirectory directory;
  const auto file = directory / "algorithms";
  find_in(file);
  const std::string good = read_bytes(file);
  std::vector<std::string> damaged = {"", "text", good.substr(0, good.size() / 2), good + good,
                                      "tessera kernel choices 2" + good.substr(24)};
  for (size_t i = 0; i < good.size(); ++i) {
    damaged.push_back(good);
    damaged.back()[i] ^= 1;
  }
  for (const std::string& bytes : damaged) {
    write_bytes(file, bytes);
    INFO(bytes);
    const Found found = find_in(file);
    REQUIRE(found.chosen);
    REQUIRE(found.choice == kChoice);
    REQUIRE_THAT(found.note, Catch::Contains(file.string() + " is damaged: "));
    REQUIRE(read_bytes(file) == good);
  }
}

TEST_CASE("choices are made where no file can be written") {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "");
  const Found found = find_in(directory / "file/algorithms");
  REQUIRE(found.choice == kChoice);
  REQUIRE_THAT(found.note, Catch::Contains("is not used, so products are timed again"));
  std::filesystem::create_directories(directory / "algorithms");
  REQUIRE(find_in(directory / "algorithms").choice == kChoice);
  REQUIRE(find_in({}).choice == kChoice);
}

TEST_CASE("the cache of choices lies in the user's cache directory") {
  const ScopedVariable home("HOME", "/home/someone");
  {
    const ScopedVariable cache("XDG_CACHE_HOME", "/caches");
    REQUIRE(choice_cache_file() == "/caches/tessera/kernel_choices");
  }
  const ScopedVariable cache("XDG_CACHE_HOME", "");
  REQUIRE(choice_cache_file() == "/home/someone/.cache/tessera/kernel_choices");
  const ScopedVariable nowhere("HOME", "");
  REQUIRE(choice_cache_file().empty());
}

// A process of a run, which would make the choice `own` itself.
struct Process {
  std::string find(const std::string& own, const std::string& where = "a GPU, cuBLASLt 13.1.0",
                   const AcceptsChoice& accepts = accepts_all) {
    return choices.find(where, "m=1 n=2", accepts, [&] { return own; });
  }

  std::string note;
  RunChoices choices{[this](const std::string& text) { note = text; }};
};

TEST_CASE("a process makes no choice that another process of its run has made") {
  Process first, second;
  REQUIRE(first.find("one") == "one");
  second.choices.share(first.choices.share(""));
  REQUIRE(second.find("two") == "one");
  REQUIRE(second.note.empty());
  REQUIRE(second.choices.share("") == first.choices.share(""));
}

TEST_CASE("a choice of the run for another GPU or version is made again, and this is said once") {
  Process first, second;
  first.find("one");
  second.choices.share(first.choices.share(""));
  REQUIRE(second.find("two", "a GPU, cuBLASLt 13.2.0") == "two");
  REQUIRE(second.note ==
          "this run chose its kernels for a GPU, cuBLASLt 13.1.0; here is a GPU, cuBLASLt 13.2.0, "
          "so they are chosen again, and its numbers may differ by rounding");
  second.note.clear();
  REQUIRE(second.find("three", "another GPU, cuBLASLt 13.2.0") == "three");
  REQUIRE(second.note.empty());
  REQUIRE(second.find("two") == "one");  // Both are kept.
}

TEST_CASE("a choice of the run that the library refuses is replaced in all its processes") {
  Process first, second, third;
  const std::string stored = [&] {
    first.find("one");
    return first.choices.share("");
  }();
  second.choices.share(stored), third.choices.share(stored);
  const auto refuses_one = [](const std::string& choice) { return choice != "one"; };
  REQUIRE(second.find("two", "a GPU, cuBLASLt 13.1.0", refuses_one) == "two");
  REQUIRE_THAT(second.note,
               Catch::Contains("; the library refuses them, so they are chosen again"));
  third.choices.share(second.choices.share(""));
  REQUIRE(third.find("three", "a GPU, cuBLASLt 13.1.0", refuses_one) == "two");
  REQUIRE(error_of([&] { third.choices.share(stored + "x"); }) ==
          "its checksum is wrong; restore the file, or remove it: kernels are then chosen again, "
          "and numbers may differ by rounding");
}

}  // namespace
}  // namespace tessera::cuda
