// SPDX-License-Identifier: Apache-2.0
// Remat policies by name (remat.h).
#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/passes/remat/remat.h"

namespace tessera {
namespace {

using Kind = RematPolicy::Kind;

struct NamedPolicy {
  std::string_view text;
  Kind kind;
  std::vector<std::string> names;
};

// Pax's policies and the names that its layers mark.
const std::vector<NamedPolicy>& policies() {
  static const std::vector<NamedPolicy> table = {
      {"save_everything", Kind::kSaveEverything, {}},
      {"save_nothing", Kind::kSaveNothing, {}},
      {"save_dot_only", Kind::kSaveContractions, {}},
      {"save_dot_with_no_batch_dims", Kind::kSaveUnbatchedContractions, {}},
      {"save_qkv_out_proj", Kind::kSaveNamed, {"combined_qkv_proj", "out_proj"}},
      {"save_qkv_out_proj_separate",
       Kind::kSaveNamed,
       {"query_proj", "value_proj", "key_proj", "out_proj"}},
      {"save_out_proj", Kind::kSaveNamed, {"out_proj"}},
      {"save_context", Kind::kSaveNamed, {"context"}},
      {"save_context_and_out_proj", Kind::kSaveNamed, {"context", "out_proj"}},
      {"save_dot_for_mlperf_200b",
       Kind::kSaveNamed,
       {"combined_qkv_proj", "query_proj", "value_proj", "key_proj", "context", "out_proj"}},
      {"save_dot_except_logits_ffn1",
       Kind::kSaveNamed,
       {"combined_qkv_proj", "query_proj", "value_proj", "key_proj", "context", "out_proj",
        "ffn2"}},
      {"save_dot_except_logits",
       Kind::kSaveNamed,
       {"combined_qkv_proj", "query_proj", "value_proj", "key_proj", "context", "out_proj", "ffn1",
        "ffn2"}},
      {"save_iteration_input", Kind::kSaveNamed, {"iteration_input"}},
      {"save_transformer_layer_output", Kind::kSaveNamed, {"transformer_layer_out"}},
  };
  return table;
}

std::vector<std::string> comma_separated(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    std::string part(text.substr(0, comma));
    std::erase(part, ' ');
    if (part.empty()) fail("remat policy: an empty name in '{}'", text);
    parts.push_back(std::move(part));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string RematPolicy::text() const {
  for (const NamedPolicy& policy : policies())
    if (policy.kind == kind && policy.names == names) return std::string(policy.text);
  return fmt::format("{}", fmt::join(names, ","));
}

RematPolicy parse_remat_policy(std::string_view text) {
  std::vector<std::string> known;
  for (const NamedPolicy& policy : policies()) {
    if (policy.text == text) return {.kind = policy.kind, .names = policy.names};
    known.emplace_back(policy.text);
  }
  std::vector<std::string> names = comma_separated(text);
  for (const std::string& name : names) {
    if (!name.starts_with("save_")) continue;
    const std::string hint = did_you_mean(name, known);
    fail("no remat policy '{}'{} (policies: {}; or a list of saved names)", name, hint,
         fmt::join(known, ", "));
  }
  return {.kind = Kind::kSaveNamed, .names = std::move(names)};
}

}  // namespace tessera
