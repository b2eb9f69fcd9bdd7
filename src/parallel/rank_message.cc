#include "parallel/rank_message.h"

#include <algorithm>

#include "base/errors.h"

namespace aerie {
namespace {

// Of a BatchRow, what is no span.
struct Row {
  int32_t sequence, token, position, slot, parent, snapshot;
  uint32_t wants;  // logits, state, taps: bits 0, 1, 2
};

Row row_of(const BatchRow& row) {
  const uint32_t wants =
      (row.wants_logits ? 1u : 0u) | (row.wants_state ? 2u : 0u) | (row.wants_taps ? 4u : 0u);
  return {row.sequence, row.token, row.position, row.slot, row.parent, row.snapshot, wants};
}

BatchRow row_of(const Row& row) {
  BatchRow out;
  out.sequence = row.sequence;
  out.token = row.token;
  out.position = row.position;
  out.slot = row.slot;
  out.parent = row.parent;
  out.wants_logits = (row.wants & 1u) != 0;
  out.wants_state = (row.wants & 2u) != 0;
  out.wants_taps = (row.wants & 4u) != 0;
  out.snapshot = row.snapshot;
  return out;
}

}  // namespace

void write_batch(const ForwardBatch& batch, MessageWriter& out) {
  out.value(static_cast<uint32_t>(batch.sequences.size()));
  for (const BatchSequence& s : batch.sequences) {
    out.value(s.committed);
    out.value(s.id);
    out.value(s.settled);
    out.values(s.pages);
  }
  out.value(static_cast<uint32_t>(batch.rows.size()));
  for (const BatchRow& row : batch.rows) {
    out.value(row_of(row));
    out.values(row.above);
  }
  out.values(std::span<const int32_t>(batch.tap_layers));
  out.values(std::span<const int32_t>(batch.skipped_layers));
  out.value(batch.first_layer);
  out.value(batch.end_layer);
  out.values(batch.hidden);
}

Status ReceivedBatch::read(MessageReader& in) {
  batch_.clear();
  const auto sequences = in.value<uint32_t>();
  pages_.resize(std::max<size_t>(pages_.size(), in.good() ? sequences : 0));
  for (uint32_t i = 0; i < sequences && in.good(); ++i) {
    BatchSequence s;
    s.committed = in.value<int32_t>();
    s.id = in.value<int32_t>();
    s.settled = in.value<int32_t>();
    in.values(pages_[i]);
    s.pages = pages_[i];
    batch_.sequences.push_back(s);
  }
  const auto rows = in.value<uint32_t>();
  above_.resize(std::max<size_t>(above_.size(), in.good() ? rows : 0));
  for (uint32_t i = 0; i < rows && in.good(); ++i) {
    BatchRow row = row_of(in.value<Row>());
    in.values(above_[i]);
    row.above = above_[i];
    batch_.rows.push_back(row);
  }
  in.values(batch_.tap_layers);
  in.values(batch_.skipped_layers);
  batch_.first_layer = in.value<int>();
  batch_.end_layer = in.value<int>();
  in.values(hidden_);
  batch_.hidden = hidden_;
  return in.good() ? Status() : internal_error("a pass of the leader ends too early");
}

void write_order(const CacheOrder& order, MessageWriter& out) {
  out.value(order.number);
  out.values(std::span<const int32_t>(order.skipped));
  out.value(order.creation);
}

CacheOrder read_order(MessageReader& in) {
  CacheOrder order;
  order.number = in.value<uint32_t>();
  in.values(order.skipped);
  order.creation = in.value<KvCache::Creation>();
  return order;
}

std::vector<std::byte> write_status(const Status& status) {
  std::vector<std::byte> bytes;
  MessageWriter out(bytes);
  out.value(status.code());
  out.text(status.message());
  return bytes;
}

Status read_status(std::span<const std::byte> bytes) {
  MessageReader in(bytes);
  const auto code = in.value<StatusCode>();
  const std::string message = in.text();
  if (!in.good()) return internal_error("an answer that cannot be read");
  return code == StatusCode::kOk ? Status() : Status(code, message);
}

}  // namespace aerie
