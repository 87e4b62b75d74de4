// SPDX-License-Identifier: Apache-2.0
// A feed-forward layer with an auxiliary loss, a metric and a histogram, each of its output.
#pragma once

#include "core/hparams/template.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/layer.h"
#include "layers/summaries.h"

namespace tessera {

class ReportingFeedForward final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = ReportingFeedForward;
    static constexpr std::string_view kName = "ReportingFeedForward";
    Template<UnaryLayer> inner_tpl = FeedForward::HParams{};
    double loss_weight = 0.1;
    FIELDS(inner_tpl, loss_weight)
  };
  explicit ReportingFeedForward(const HParams& p) : p_(p), inner_(child("inner", p.inner_tpl)) {}

 private:
  Tensor fprop(Tensor x) const override {
    const Tensor y = inner_(x);
    const auto tokens = static_cast<double>(y.size("batch") * y.size("seq"));
    const double elements = tokens * static_cast<double>(y.size("embed"));
    const Tensor zero = constant(0.0, y.dtype()), one = constant(1.0, y.dtype());
    add_loss("squares", reduce_sum(square(y)) * (p_.loss_weight / elements));
    add_metric("positive",
               {reduce_sum(where(less(zero, y), one, zero)), constant(elements, DType::kF32)});
    add_metric("load", {reduce_sum(abs(y), "batch seq"), constant(tokens, DType::kF32)});
    return y;
  }

  HParams p_;
  ChildLayer<UnaryLayer> inner_;
};

}  // namespace tessera
