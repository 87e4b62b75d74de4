// SPDX-License-Identifier: Apache-2.0
// From ids to vectors and from vectors to logits: Embedding, and the softmaxes that turn a model's
// last hidden state into logits and a cross-entropy loss. Losses are per token; the model weights
// and sums them.
#pragma once

#include <functional>
#include <vector>

#include "core/hparams/template.h"
#include "core/ops/cross_entropy.h"
#include "layers/layer.h"

namespace tessera {

// Looks up rows of a learned table: ids i32["batch seq"] -> ["batch seq embed"].
class Embedding final : public LayerOf<Tensor(Tensor ids)> {
 public:
  struct HParams {
    using Instance = Embedding;
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    bool scale_sqrt_depth = false;  // Multiply the rows by √model_dims.
    double multiplier = 1.0;        // Multiplies the rows, too (Granite, muP).
    LayerHParams layer;
    FIELDS(About(vocab_size, kSize), About(model_dims, kSize), scale_sqrt_depth,
           About(multiplier, kPositive), layer)
  };
  explicit Embedding(const HParams& p);

 private:
  Tensor fprop(Tensor ids) const override;

  double scale_;
  Weight table_;
};

// A vector for the kind of each token, such as the first or the second text of a pair (BERT; Devlin
// et al., 2019): x["batch seq embed"] plus the row of each token's type, i32["batch seq"]; invalid:
// all of type 0.
class TypeEmbedding final : public LayerOf<Tensor(Tensor x, Tensor types)> {
 public:
  struct HParams {
    using Instance = TypeEmbedding;
    int64_t num_types = 2;
    Required<int64_t> model_dims;
    LayerHParams layer;
    FIELDS(About(num_types, kSize), About(model_dims, kSize), layer)
  };
  explicit TypeEmbedding(const HParams& p);

 private:
  Tensor fprop(Tensor x, Tensor types) const override;

  Weight table_;
};

struct SoftmaxOptions {
  static constexpr std::string_view kName = "SoftmaxOptions";
  double label_smoothing = 0.0;  // Pax: label_smoothing_prob.
  double z_loss = 0.0;           // Pax: z_loss_weight.
  // If γ > 0: the cross-entropy of a label of probability p times (1 - p)^γ (Lin et al., 2017).
  double focal_gamma = 0.0;
  double multiplier = 1.0;  // Multiplies logits, but not their bias (Granite, muP).
  double soft_cap = 0.0;    // If > 0: cap·tanh(logits/cap). Pax: soft_cap_logits.
  // The loss of a longer batch is computed in chunks of about this many tokens per device, so that
  // only one chunk's logits exist at a time. 0: all at once.
  int64_t chunk_tokens = 4096;
  FIELDS(About(label_smoothing, kRate), About(z_loss, kNotNegative),
         About(focal_gamma, {.min = 0, .max = 64}), About(multiplier, kPositive),
         About(soft_cap, kNotNegative), About(chunk_tokens, kNotNegative))
};

struct DistilledLoss {
  CrossEntropy labels;
  Tensor divergence;  // f32[…]: KL(teacher ‖ model) of each token.
};

// A softmax declares its matrix, and overrides `lookup` if that is also the input embedding.
class BaseSoftmax : public Layer {
 public:
  // x["… embed"] -> ["… vocab"] in the output dtype, with soft_cap.
  Tensor logits(Tensor x) const;
  // Returns the loss against labels i32[…], with smoothing and z-loss.
  CrossEntropy loss(Tensor x, Tensor labels) const;
  // Returns the cross-entropy of labels that are drawn from the predictions: where `uniform`
  // f32[…], from 0 to 1, is among the running sums of probabilities.
  CrossEntropy drawn_loss(Tensor x, Tensor uniform) const;
  // Also returns the divergence from what `teacher` predicts of its own `taught` ["… embed"], the
  // logits of both divided by `temperature`.
  DistilledLoss distilled_loss(Tensor x, Tensor labels, const BaseSoftmax& teacher, Tensor taught,
                               double temperature) const;

  // ids i32[…] -> ["… embed"]; Error unless shares_embedding().
  virtual bool shares_embedding() const { return false; }
  Tensor embed_ids(Tensor ids) const;

 protected:
  // `matrix` has the axes `vocab` and `embed`, in any order.
  BaseSoftmax(const LayerHParams& p, const SoftmaxOptions& options, std::vector<Axis> matrix,
              bool use_bias);

  Weight w_;

 private:
  struct Projection {
    Tensor matrix;
    Tensor bias;  // ["vocab"]; invalid without a bias.
  };
  Projection projection() const;
  static Tensor project(const Projection& weights, const Tensor& x);  // Logits without soft_cap.
  Tensor multiplied(const Tensor& x) const;
  virtual Tensor lookup(Tensor ids) const;

  // What `score` returns of logits and `other` ["batch seq"], in chunks.
  CrossEntropy scored(
      Tensor x, Tensor other,
      const std::function<CrossEntropy(const Tensor& logits, const Tensor& other)>& score) const;
  CrossEntropy label_loss(const Tensor& logits, const Tensor& labels) const;
  // Logits as they are compared: in f32 with soft_cap.
  Tensor capped(const Tensor& logits, DType dtype) const;
  int64_t chunk_size(const Tensor& x) const;

  SoftmaxOptions options_;
  Weight bias_;
};

// A softmax with its own matrix ("untied").
class FullSoftmax final : public BaseSoftmax {
 public:
  struct HParams {
    using Instance = FullSoftmax;
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    bool use_bias = false;
    SoftmaxOptions loss;
    LayerHParams layer;
    FIELDS(About(vocab_size, kSize), About(model_dims, kSize), use_bias, loss, layer)
  };
  explicit FullSoftmax(const HParams& p);
};

// One table that embeds ids and scores the vocabulary ("tied"; Press and Wolf, 2017).
class SharedEmbeddingSoftmax final : public BaseSoftmax {
 public:
  struct HParams {
    using Instance = SharedEmbeddingSoftmax;
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    bool scale_sqrt_depth = false;  // Multiply the embedded rows by √model_dims; not the logits.
    double multiplier = 1.0;        // Multiplies the embedded rows, too.
    bool use_bias = false;          // Adds a bias to the logits. Pax's default is true.
    SoftmaxOptions loss;
    LayerHParams layer;
    FIELDS(About(vocab_size, kSize), About(model_dims, kSize), scale_sqrt_depth,
           About(multiplier, kPositive), use_bias, loss, layer)
  };
  explicit SharedEmbeddingSoftmax(const HParams& p);

  bool shares_embedding() const override { return true; }

 private:
  Tensor lookup(Tensor ids) const override;

  double scale_;
};

extern template class HolderOf<Embedding, Embedding::HParams>;
extern template class HolderOf<TypeEmbedding, TypeEmbedding::HParams>;
extern template class HolderOf<BaseSoftmax, FullSoftmax::HParams>;
extern template class HolderOf<BaseSoftmax, SharedEmbeddingSoftmax::HParams>;

}  // namespace tessera
