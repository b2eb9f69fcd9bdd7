#include "decode/pass_builder.h"

#include "kv/chain_rows.h"

namespace aerie {

PassBuilder::PassBuilder(const KvCache& cache, const Drafter* drafter, int max_rows)
    : cache_(cache) {
  if (drafter != nullptr) batch_.tap_layers = drafter->needs().tap_layers;
  batch_.rows.reserve(static_cast<size_t>(max_rows));
  logits_at_.reserve(static_cast<size_t>(max_rows));
}

void PassBuilder::clear() {
  batch_.sequences.clear();
  batch_.rows.clear();
  batch_.first_layer = 0;
  batch_.hidden = {};
}

void PassBuilder::add_round(const Sequence& sequence, const TokenTree& tree) {
  const auto index = static_cast<int32_t>(batch_.sequences.size());
  const int committed = cache_.committed(sequence.cache);
  batch_.sequences.push_back({cache_.pages(sequence.cache), committed, sequence.cache});
  const auto root = static_cast<int32_t>(batch_.rows.size());
  BatchRow row;
  row.sequence = index;
  row.token = sequence.tokens.back();
  row.position = committed;
  row.slot = cache_.slot(sequence.cache, 0);
  row.wants_logits = true;
  row.wants_taps = has_taps();
  batch_.rows.push_back(row);
  for (int i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    row.token = node.token;
    row.position = committed + node.depth;
    row.slot = cache_.slot(sequence.cache, 1 + i);
    row.parent = root + 1 + node.parent;
    row.wants_logits = node.role != NodeRole::kWindow;
    batch_.rows.push_back(row);
  }
}

void PassBuilder::add_piece(const PromptPiece& piece) {
  const Sequence& sequence = *piece.sequence;
  for (BatchRow& row : add_chain(batch_, cache_, sequence.cache, piece.rows, true)) {
    row.token = sequence.tokens[static_cast<size_t>(row.position)];
    const bool ends_prompt =
        sequence.generated() == 0 && row.position == sequence.prompt_length - 1;
    const bool wanted = sequence.wants_all_rows() || ends_prompt;
    const bool pools = sequence.options.pooling != Pooling::kNone;
    row.wants_logits = wanted && !pools;
    row.wants_state = wanted && pools;
    row.wants_taps = sequence.options.speculate && has_taps();
  }
}

void PassBuilder::number_logits() {
  logits_at_.clear();
  int32_t logits = 0;
  for (const BatchRow& row : batch_.rows) logits_at_.push_back(row.wants_logits ? logits++ : -1);
}

}  // namespace aerie
