// SPDX-License-Identifier: Apache-2.0
// The bases of recipes with mixtures of experts (Pax: MoELarge, GLaM and Grok in
// paxml/tasks/lm/params/nvidia.py, whose models are in praxis/layers/glam.py and
// praxis/layers/grok.py).
//
// The mesh has an axis `data_expert` before `mdl`, as Pax's has with expert parallelism. It splits
// the batch and the experts, to whose devices tokens are sent; and it splits other weights at rest,
// as `data` does, over which the weights of experts are gathered.
#pragma once

#include <cstdint>

#include "core/hparams/fields.h"
#include "experiments/nvidia/nvidia_recipe.h"

namespace tessera {

// Pax's MoELarge: a GPT whose feed-forward layers are mixtures, with the gating of GShard (Lepikhin
// et al., 2020): two experts for each token, and slots for a fixed number of tokens of an example.
struct NvidiaMoeRecipe : NvidiaRecipe {
  using Base = NvidiaRecipe;
  int64_t num_experts = 16;
  int64_t moe_period = 1;  // The first of so many layers has a mixture.
  // Slots of all experts together for each token. Pax: unadjusted_expert_capacity_factor.
  double slots_per_token = 2.0;
  double load_balance_weight = 1.0;  // Pax: moe_load_balance_loss_weight.
  bool use_gated_experts = false;
  Template<Activation> expert_activation_tpl = GELU::HParams{.approximate = true};
  FIELDS(About(num_experts, kSize), About(moe_period, kSize), About(slots_per_token, kPositive),
         About(load_balance_weight, kNotNegative), use_gated_experts, expert_activation_tpl)

  ExperimentConfig build() const override;
  void shrink() override;

 protected:
  static constexpr int64_t kExpertsOfToken = 2;

  // Returns the dense model of the base, with mixtures.
  Template<BaseModel> model() const override;
  Template<UnaryLayer> experts() const;
};

// The common knobs of GLaM and Grok: RMSNorm with scales that are stored as they are, no caps, no
// learned positions, no biases, z-loss.
struct GshardLmRecipe : NvidiaMoeRecipe {
  using Base = NvidiaMoeRecipe;
  double z_loss_weight = 1e-4;
  FIELDS(About(z_loss_weight, kNotNegative))
  GshardLmRecipe();

 protected:
  Template<BaseModel> model() const override;
};

// GLaM (Du et al., 2022, arXiv 2112.06905): every second layer is a mixture, of ungated experts;
// the feed-forward layers of the others are gated. Heads have dims_per_head dimensions, also where
// there are more heads than model_dims has room for.
struct GlamRecipe : GshardLmRecipe {
  GlamRecipe();

 protected:
  Template<SequenceLayer> attention() const override;
  Template<UnaryLayer> feed_forward() const override;
};

// Grok-1: each layer is a mixture of gated experts; key-value heads are shared by six query heads.
struct GrokRecipe : GshardLmRecipe {
  GrokRecipe();
};

}  // namespace tessera
