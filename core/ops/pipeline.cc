// SPDX-License-Identifier: Apache-2.0
#include "core/ops/pipeline.h"

#include <optional>
#include <set>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/typing.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

// Gives each slot and output the type of the bodies that write it, and compares all readers.
class TypeRule {
 public:
  explicit TypeRule(const InferContext& context)
      : context_(context),
        carries_(context.attributes.get(key::kCarries)),
        stacked_(context.attributes.get(key::kStacked)),
        outputs_(context.attributes.get(key::kOutputs)),
        written_(outputs_ + context.attributes.get(key::kSlots)) {}

  std::vector<Type> run() {
    for (size_t i = 0; i < carries_; ++i) written_[i] = context_.inputs[i];
    for (size_t b = 0; b < context_.bodies.size(); ++b) check_writes(b);
    for (size_t b = 0; b < context_.bodies.size(); ++b) check_reads(b);
    check_order();
    const std::string& axis = context_.attributes.get(key::kAxis);
    const auto count = context_.attributes.get(key::kCount);
    std::vector<Type> types;
    for (size_t i = 0; i < outputs_; ++i) {
      CHECK(written_[i].has_value(), "no body writes result {}", i);
      types.push_back(i < carries_ ? *written_[i] : stacked_type(*written_[i], axis, count));
    }
    return types;
  }

 private:
  void expect(const Type& got, const Type& expected, size_t body, std::string_view what) const {
    if (got != expected)
      refuse(context_, "{} of body {} is {}, expected {}", what, body, got.text_sized(),
             expected.text_sized());
  }

  void check_writes(size_t b) {
    const Graph& body = *context_.bodies[b];
    const auto& writes = ports(writes_attribute(b));
    CHECK(writes.size() == body.outputs().size());
    for (size_t i = 0; i < writes.size(); ++i) {
      const Type& type = body.type(body.outputs()[i].value);
      std::optional<Type>& known = written_.at(static_cast<size_t>(writes[i]));
      if (known) expect(type, *known, b, "an output");
      known = type;
    }
  }

  void check_reads(size_t b) const {
    const Graph& body = *context_.bodies[b];
    const auto& reads = ports(reads_attribute(b));
    CHECK(reads.size() + 1 == body.inputs().size());
    for (size_t i = 0; i < reads.size(); ++i) {
      const auto number = static_cast<size_t>(reads[i]);
      const Type& inner = body.type(body.inputs()[1 + i].value);
      if (number >= context_.inputs.size()) {
        const auto& slot = written_.at(number - context_.inputs.size() + outputs_);
        CHECK(slot.has_value(), "body {} reads slot {}, which no body writes", b,
              number - context_.inputs.size());
        expect(inner, *slot, b, "a slot");
      } else {
        const bool sliced = number >= carries_ && number < carries_ + stacked_;
        const Type& outer = context_.inputs[number];
        expect(inner, sliced ? slice_type(outer) : outer, b, "an operand");
      }
    }
  }

  const std::vector<int64_t>& ports(const std::string& attribute) const {
    return context_.attributes.get(PortsName{attribute});
  }

  // A slot is written for a microbatch before it is read for it.
  void check_order() const {
    const auto& calls = context_.attributes.get(key::kCalls);
    std::set<std::pair<int64_t, int64_t>> written;  // Slot and microbatch.
    for (size_t i = 0; i < calls.size(); i += 2) {
      const auto b = static_cast<size_t>(calls[i]);
      for (const int64_t number : ports(reads_attribute(b))) {
        const int64_t slot = number - std::ssize(context_.inputs);
        if (slot >= 0 && !written.contains({slot, calls[i + 1]}))
          refuse(context_, "body {} reads slot {} of microbatch {} before it is written", b, slot,
                 calls[i + 1]);
      }
      for (const int64_t number : ports(writes_attribute(b)))
        written.emplace(number - static_cast<int64_t>(outputs_), calls[i + 1]);
    }
  }

  const InferContext& context_;
  size_t carries_, stacked_, outputs_;
  std::vector<std::optional<Type>> written_;  // Outputs (of a result: one slice), then slots.
};

}  // namespace

const Op kPipelineOp{
    {.name = "pipeline", .op_class = OpClass::kLoop, .infer = [](const InferContext& context) {
       return TypeRule(context).run();
     }}};

bool is_pipeline(const Node& node) { return node.op == &kPipelineOp; }

Pipeline::Pipeline(const Node& node) : node_(&node) { CHECK(is_pipeline(node)); }

std::vector<PipelineCall> Pipeline::calls() const {
  const auto& numbers = node_->attributes.get(key::kCalls);
  std::vector<PipelineCall> calls;
  for (size_t i = 0; i < numbers.size(); i += 2) calls.push_back({numbers[i], numbers[i + 1]});
  return calls;
}

std::string Pipeline::task_name(const PipelineCall& call) const {
  const std::string& work = node_->attributes.get(key::kWorks).at(static_cast<size_t>(call.body));
  if (work.empty()) return "";
  return fmt::format("{}{}{}", work.front(), call.microbatch, work.substr(1));
}

std::string reads_attribute(size_t body) { return fmt::format("reads {}", body); }
std::string writes_attribute(size_t body) { return fmt::format("writes {}", body); }

bool runs_bodies(const Node& node) { return node.op->op_class == OpClass::kLoop; }

std::vector<std::pair<const Graph*, int64_t>> run_bodies(const Node& node) {
  if (is_repeat(node)) {
    const Loop loop(node);
    return {{&loop.body(), loop.count()}};
  }
  std::vector<std::pair<const Graph*, int64_t>> bodies;
  if (!is_pipeline(node)) return bodies;
  for (const auto& body : node.bodies) bodies.emplace_back(body.get(), 0);
  for (const PipelineCall& call : Pipeline(node).calls())
    ++bodies[static_cast<size_t>(call.body)].second;
  return bodies;
}

}  // namespace tessera
