// SPDX-License-Identifier: Apache-2.0
// seqax's transformer in seqax's style: every weight is declared with its layout, and every gather
// and scatter is explicit, next to its einsum. It uses no axis rules and no other layers. (MatX,
// https://github.com/MatX-inc/seqax.)
#pragma once

#include <cstdint>
#include <string_view>

#include "core/hparams/template.h"
#include "layers/models/base_model.h"

namespace tessera {

class SeqaxModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = SeqaxModel;
    Required<int64_t> num_layers;
    Required<int64_t> model_dims;
    Required<int64_t> num_heads;     // Heads of queries.
    Required<int64_t> num_kv_heads;  // Divides num_heads.
    Required<int64_t> dims_per_head;
    Required<int64_t> hidden_dims;
    Required<int64_t> vocab_size;
    double rope_max_timescale = 10000.0;
    Field<DTypePolicy> dtypes;
    FIELDS(About(num_layers, kSize), About(model_dims, kSize), About(num_heads, kSize),
           About(num_kv_heads, kSize), About(dims_per_head, kSize), About(hidden_dims, kSize),
           About(vocab_size, kSize), About(rope_max_timescale, kPositive), dtypes)
  };
  explicit SeqaxModel(const HParams& p);

 private:
  // Features: ids, labels, weights and segment_ids of packed rows. Rotary positions count from the
  // row's start, also in later documents.
  ModelOutput fprop(const Features& features) const override;
  Tensor fprop_logits(const Features& features) const override;
  Tensor fprop_next_logits(const Features& features) const override;

  // Returns the residual after all blocks: "batch/data seq embed". `segment_ids` invalid: one
  // document a row.
  Tensor blocks(Tensor ids, Tensor segment_ids) const;
  Tensor loop_body(Tensor x, Tensor segment_ids) const;
  // Returns a weight, or this iteration's slice of a stacked one, cast and then gathered to this
  // layout.
  Tensor gathered(Weight weight, std::string_view layout) const {
    return gathered(weight, layout, dtypes().compute);
  }
  Tensor gathered(Weight weight, std::string_view layout, DType dtype) const;

  HParams p_;
  Weight embed_, unembed_, ln1_, ln2_, w_q_, w_kv_, w_o_, w_gate_, w_up_, w_down_, final_norm_;
};

extern template class HolderOf<BaseModel, SeqaxModel::HParams>;

}  // namespace tessera
