// SPDX-License-Identifier: Apache-2.0
// What turns a model's last hidden state into logits and a cross-entropy loss, in one go or in
// chunks of the sequence, so that only one chunk's logits exist at a time. Losses are per token;
// the model weights and sums them.
#pragma once

#include <string>

#include "core/ops/cross_entropy.h"
#include "layers/layer.h"

namespace tessera {

struct SoftmaxOptions {
  static constexpr std::string_view kName = "SoftmaxOptions";
  double label_smoothing = 0.0;  // Pax: label_smoothing_prob.
  double z_loss = 0.0;           // Pax: z_loss_weight.
  double soft_cap = 0.0;         // cap·tanh(logits/cap), if > 0. Pax: soft_cap_logits.
  int64_t num_chunks = 1;        // Of the sequence, which it must divide.
  FIELDS(label_smoothing, z_loss, soft_cap, num_chunks)
};

class BaseSoftmax : public Layer {
 public:
  // x["… embed"] -> ["… vocab"] in the output dtype, as the model scores.
  Tensor logits(Tensor x) const;
  // Against labels i32[…], with smoothing and z-loss.
  CrossEntropy loss(Tensor x, Tensor labels) const;

  // ids i32[…] -> ["… embed"], if the table is also the input embedding.
  virtual bool shares_embedding() const { return false; }
  virtual Tensor embed_ids(Tensor ids) const;

 protected:
  BaseSoftmax(const Field<DTypePolicy>& dtypes, const LayerRules& rules,
              const SoftmaxOptions& options);

  struct Projection {
    Tensor matrix;  // ["vocab embed"] or ["embed vocab"].
    Tensor bias;    // ["vocab"]; invalid if there is none.
  };
  virtual Projection projection() const = 0;

 private:
  CrossEntropy whole_loss(const Projection& projection, Tensor x, Tensor labels) const;
  CrossEntropy chunked_loss(const Projection& projection, Tensor x, Tensor labels) const;

  SoftmaxOptions options_;
};

}  // namespace tessera
