// SPDX-License-Identifier: Apache-2.0
// Means of eval tags, and the table of scores.
#include <cmath>

#include "core/base/error.h"
#include "tasks/run/eval/eval_output.h"
#include "tasks/run/eval/evaluation.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string message_of(const EvalTags& tags) {
  return error_of([&] { check_tags(tags, {"books", "web", "web/news", "web/forums"}); });
}

TEST_CASE("tag means weight labels equally, macro means weight members equally") {
  MetricMeans large, small, empty;
  large.add("loss", 300.0, 100.0);
  large.add("log_pplx", 300.0, 100.0);
  small.add("loss", 10.0, 10.0);
  small.add("log_pplx", 10.0, 10.0);
  empty.add("loss", 0.0, 0.0);
  empty.add("log_pplx", 0.0, 0.0);
  const std::vector<std::string> names = {"log_pplx", "loss", "perplexity", "weight"};
  const auto values = tag_values({large, small, empty}, names);
  REQUIRE(values.at("loss") == Approx(310.0 / 110.0));
  REQUIRE(values.at("macro_loss") == Approx((3.0 + 1.0) / 2.0));
  REQUIRE(values.at("perplexity") == Approx(std::exp(310.0 / 110.0)));
  REQUIRE(values.at("weight") == 110.0);
  REQUIRE(values.size() == tag_names(names).size());
  for (const std::string& name : tag_names(names)) REQUIRE(values.count(name) == 1);
  REQUIRE(std::isnan(tag_values({empty}, names).at("macro_loss")));
}

TEST_CASE("a tag names existing datasets, each once") {
  using Catch::Contains;
  REQUIRE(message_of({{"all", {"books", "web"}}, {"talk", {"web/forums"}}}) == "no error");
  REQUIRE_THAT(message_of({{"all", {"boks"}}}),
               Contains("eval.tags.all") && Contains("did you mean 'books'?"));
  REQUIRE_THAT(message_of({{"all", {}}}), Contains("it names no dataset"));
  REQUIRE_THAT(message_of({{"all", {"web", "web"}}}), Contains("it names 'web' twice"));
  REQUIRE_THAT(message_of({{"all", {"web", "web/news"}}}),
               Contains("its labels would count twice"));
  REQUIRE_THAT(message_of({{"a/b", {"web"}}}), Contains("not a valid tag name"));
}

TEST_CASE("scores are printed as a table: datasets, their sources, then tags") {
  const std::vector<std::string> table = eval_table(1200, {{"eval/books/loss", 2.25},
                                                           {"eval/books/perplexity", 9.4877},
                                                           {"eval/books/weight", 123456},
                                                           {"eval/tag/all/loss", 2.5},
                                                           {"eval/tag/all/macro_loss", 2.75},
                                                           {"eval/web/loss", std::nan("")},
                                                           {"eval/web/news/loss", 1e9},
                                                           {"eval/web/choice/right", 0.5}});
  REQUIRE(table == std::vector<std::string>{
                       "step 1200          loss  perplexity  labels   right",
                       "books            2.2500      9.4877  123.5k",
                       "web                   -",
                       "web/choice                                   0.5000",
                       "web/news          1e+09",
                       "tag/all          2.5000",
                       "tag/all (macro)  2.7500",
                   });
  REQUIRE(eval_table(1, {}).empty());
}

TEST_CASE("metrics that do not fit into 100 columns are in another table below") {
  std::map<std::string, double> metrics;
  for (int i = 0; i < 9; ++i) metrics[fmt::format("eval/validation/quite_a_long_name_{}", i)] = i;
  const std::vector<std::string> table = eval_table(1200, metrics);
  REQUIRE(table.size() == 6);  // Two lines for each of three tables.
  for (const std::string& line : table) REQUIRE(line.size() <= 100);
  REQUIRE(table[2] ==
          "step 1200   quite_a_long_name_4  quite_a_long_name_5  quite_a_long_name_6  "
          "quite_a_long_name_7");
  REQUIRE(table[5] == "validation               8.0000");
}

TEST_CASE("the table has a metric of all layers, not those of each") {
  const std::vector<std::string> table = eval_table(7, {{"eval/books/load", 2.25},
                                                        {"eval/books/lm.x_layers[0].ffn.load", 1.0},
                                                        {"eval/books/recall.5", 0.5}});
  REQUIRE(table == std::vector<std::string>{"step 7    load  recall.5",  //
                                            "books   2.2500    0.5000"});
}

}  // namespace
}  // namespace tessera
