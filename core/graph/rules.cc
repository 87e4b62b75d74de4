// SPDX-License-Identifier: Apache-2.0
#include "core/graph/rules.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// Parses "residual: seq -> mdl, batch -> (replica, data), head_dim -> ()".
class RuleReader {
 public:
  explicit RuleReader(std::string_view text) : text_(text) {}

  std::vector<AxisRule> read() {
    std::vector<AxisRule> rules;
    skip_spaces();
    while (position_ < text_.size()) {
      rules.push_back(read_rule());
      if (position_ < text_.size()) expect(",");
    }
    return rules;
  }

 private:
  void skip_spaces() {
    while (position_ < text_.size() &&
           std::isspace(static_cast<unsigned char>(text_[position_])) != 0)
      ++position_;
  }
  bool skip(std::string_view token) {
    if (!text_.substr(position_).starts_with(token)) return false;
    position_ += token.size();
    skip_spaces();
    return true;
  }
  void expect(std::string_view token) {
    if (!skip(token)) refuse(fmt::format("'{}'", token));
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    const std::string_view rest = text_.substr(position_, 12);
    fail("rules \"{}\": expected {} at character {}, got {}", text_, expected, position_ + 1,
         rest.empty() ? "the end" : fmt::format("'{}'", rest));
  }

  std::string read_name(const std::string& what) {
    const size_t begin = position_;
    while (position_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[position_])) != 0 ||
            text_[position_] == '_'))
      ++position_;
    if (position_ == begin) refuse(what);
    std::string name(text_.substr(begin, position_ - begin));
    skip_spaces();
    return name;
  }

  AxisRule read_rule() {
    AxisRule rule;
    rule.axis = read_name("a logical axis");
    if (skip(":")) {
      rule.role = rule.axis;
      rule.axis = read_name("a logical axis");
    }
    expect("->");
    if (!skip("(")) {
      rule.mesh.push_back(read_name("a mesh axis or '('"));
      return rule;
    }
    while (!skip(")")) {
      if (!rule.mesh.empty()) expect(",");
      const std::string name = read_name("a mesh axis or ')'");
      if (std::ranges::find(rule.mesh, name) != rule.mesh.end())
        fail("rules \"{}\": {} is split over {} twice", text_, rule.axis, name);
      rule.mesh.push_back(name);
    }
    return rule;
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

std::vector<AxisRule> parse_rules(std::string_view text) { return RuleReader(text).read(); }

std::string rules_text(const std::vector<AxisRule>& rules) {
  std::string text;
  for (const AxisRule& rule : rules) {
    if (!text.empty()) text += ", ";
    if (!rule.role.empty()) text += rule.role + ": ";
    text += rule.axis + " -> ";
    text +=
        rule.mesh.size() == 1 ? rule.mesh.front() : fmt::format("({})", fmt::join(rule.mesh, ", "));
  }
  return text;
}

std::vector<AxisRule> overlay_rules(const std::vector<AxisRule>& own,
                                    const std::vector<AxisRule>& general) {
  std::vector<AxisRule> rules = own;
  for (const AxisRule& rule : general) {
    const bool overridden = std::ranges::any_of(own, [&](const AxisRule& each) {
      return each.axis == rule.axis && (each.role.empty() || each.role == rule.role);
    });
    if (!overridden) rules.push_back(rule);
  }
  return rules;
}

Type apply_rules(const std::vector<AxisRule>& rules, const Mesh& mesh, Type type,
                 std::string_view role) {
  type.partial = {};
  for (Axis& axis : type.axes) axis.split.clear();
  std::vector<std::string> ruled;    // Logical axes that have a rule.
  std::vector<std::string> claimed;  // Mesh axes in use.
  const auto contains = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto apply = [&](const AxisRule& rule) {
    for (const std::string& name : rule.mesh) mesh.position(name);  // Error if unknown.
    const int64_t position = type.find(rule.axis);
    if (position < 0 || contains(ruled, rule.axis)) return;
    ruled.push_back(rule.axis);
    for (const std::string& name : rule.mesh) {
      if (contains(claimed, name)) continue;
      claimed.push_back(name);
      type.axes[static_cast<size_t>(position)].split.push_back(name);
    }
  };
  if (!role.empty())
    for (const AxisRule& rule : rules)
      if (rule.role == role) apply(rule);
  for (const AxisRule& rule : rules)
    if (rule.role.empty()) apply(rule);
  return type;
}

}  // namespace tessera
