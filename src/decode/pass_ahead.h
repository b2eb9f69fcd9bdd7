// The pass that verifies a round's drafts, begun while a device computes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/token_tree.h"
#include "decode/decoder_options.h"
#include "decode/pass_builder.h"
#include "decode/round_drafts.h"
#include "decode/sequence.h"
#include "draft/drafter.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie {

// All that it is made of must outlive it.
class PassAhead final : public DraftsAhead {
 public:
  PassAhead(Model& model, KvCache& cache, const Drafter* drafter, RoundDrafts& drafts,
            const DecoderOptions& options)
      : model_(model),
        cache_(cache),
        drafts_(drafts),
        max_nodes_(static_cast<size_t>(options.max_nodes)),
        pass_(cache, drafter, options.max_rows) {
    found_rows_.reserve(static_cast<size_t>(options.max_rows));
  }

  // As PassBuilder's.
  void tap(const std::vector<int32_t>& layers) { pass_.tap(layers); }
  // What the drafts of these rounds, which stay until it is over, may tell; null: nothing can be
  // begun.
  DraftsAhead* of(Rounds rounds, Pieces pieces);
  // Begins the pass where all of the rounds' drafts are such chains. The forward pass of trees that
  // are then finds its outputs (Model::begin()).
  void expect(std::span<const Chain> chains, const FoundTokens& found) override;
  bool has_begun() const override { return begun_rows_ > 0; }
  // Whether a pass was begun and this one comes after it, of the same rounds.
  bool was_another(const ForwardBatch& batch) const {
    return has_begun() && batch.size() != begun_rows_;
  }

 private:
  bool make_trees(std::span<const Chain> chains);

  Model& model_;
  KvCache& cache_;
  RoundDrafts& drafts_;
  size_t max_nodes_;
  PassBuilder pass_;
  Rounds rounds_;
  int begun_rows_ = 0;  // of the pass that was begun; 0: none was
  // Scratch.
  std::vector<TokenTree> trees_;
  std::vector<int32_t> found_rows_;
};

}  // namespace aerie
