// A batch on its way through P-EAGLE's network and back.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "train/batches/batch.h"
#include "train/methods/eagle/eagle3_head.h"
#include "train/methods/peagle/peagle_attention.h"
#include "train/methods/peagle/peagle_elements.h"
#include "train/nn/losses.h"

namespace aerie::train {

// One batch on its way through the network. Rows of the context see nothing of chains, so they are
// run once, whatever the chains are cut into: chains read of them the keys and values of each
// layer.
class PEagleStep {
 public:
  struct Settings {
    Divergence loss = Divergence::kForwardKl;
    int64_t depths = 0;
    double scale = 1.0;  // of each row's loss
    bool train = true;
    // Logits that are there at once, and as many of the target's, but at least of kLeastRows rows.
    int64_t logits = int64_t{1} << 20;
    static constexpr int64_t kLeastRows = 128;
  };

  // `head` and `batch` outlive it. `supervised`: bool [rows].
  PEagleStep(const Eagle3Head& head, const Batch& batch, const at::Tensor& supervised,
             const Settings& settings)
      : head_(head),
        batch_(batch),
        settings_(settings),
        context_(context_rows(batch.documents, batch.tokens.device())),
        rotary_(head.rotary(batch.positions)),
        asked_(supervised.nonzero().squeeze(1)),
        sums_(at::zeros({3, settings.depths}, batch.mask.options().dtype(at::kDouble))) {}

  // Of the network's outputs before its output matrix: of the context's rows, and of all chains'
  // (undefined if there are none). In one graph.
  struct Streams {
    at::Tensor context, chains;
  };
  Streams streams(const Chains& chains) const;

  // The losses of all supervised rows of the context and of all rows of the chains, and their
  // gradients: of all in one graph,
  void run_whole(const Chains& chains);
  // or with a graph for the chains of each cut and one for each layer of the context.
  void run_in_parts(const Chains& chains, const std::vector<std::pair<int64_t, int64_t>>& cuts);

  // By depth: of losses, of tokens that were right, of rows.
  const at::Tensor& sums() const { return sums_; }

 private:
  struct Result {
    at::Tensor stream;
    Keys keys;
  };

  ElementRows rows_of(const Chains& chains, int64_t begin, int64_t end) const {
    return chain_rows(batch_.documents, chains, begin, end, batch_.tokens.device());
  }
  Eagle3Head::Entry enter_context() const;
  Eagle3Head::Entry enter_masked() const;
  // Any layer but the first.
  Eagle3Head::Entry enter(size_t layer, const at::Tensor& stream) const;
  Result run_layer(size_t layer, const Eagle3Head::Entry& entry, const Rotary& rotary,
                   const ElementRows& rows, const Keys& context) const;
  at::Tensor run_chains(const ElementRows& rows, const std::vector<Keys>& context) const;
  at::Tensor judge(const at::Tensor& stream, const at::Tensor& places, const at::Tensor& depths);
  at::Tensor judge_chains(const at::Tensor& stream, const ElementRows& rows) {
    return judge(stream, rows.anchors + rows.depths, rows.depths);
  }
  at::Tensor judge_context(const at::Tensor& stream) {
    return judge(stream, asked_, at::zeros_like(asked_));
  }
  void back_through_context(std::vector<at::Tensor> inputs, std::vector<Keys> keys,
                            at::Tensor gradient) const;

  size_t layers() const { return head_.layers().size(); }

  const Eagle3Head& head_;
  const Batch& batch_;
  Settings settings_;
  ElementRows context_;
  Rotary rotary_;
  at::Tensor asked_;  // int64: rows of the batch that are supervised
  at::Tensor sums_;
};

}  // namespace aerie::train
