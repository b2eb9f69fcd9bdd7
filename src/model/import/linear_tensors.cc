#include "model/import/linear_tensors.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

namespace aerie {
namespace {

using Order = std::vector<int64_t>;  // of each row of the result, the row of the source

bool moves_heads(const LinearAttention& shape) {
  return shape.tiled && shape.heads != shape.key_heads;
}

// Which head of the folder becomes head `h`.
int64_t source_head(const LinearAttention& shape, int64_t h) {
  if (!shape.tiled) return h;
  const int64_t together = shape.heads / shape.key_heads;
  return h % shape.key_heads * together + h / shape.key_heads;
}

void add_run(Order& order, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) order.push_back(first + i);
}

void add_heads(Order& order, const LinearAttention& shape, int64_t first, int64_t width) {
  for (int64_t h = 0; h < shape.heads; ++h) {
    add_run(order, first + source_head(shape, h) * width, width);
  }
}

// Rows of a matrix [key_heads][queries, keys, values, gates]: `from` is where what is wanted begins
// in a key head's part, `width` how much of it there is.
void add_groups(Order& order, const LinearAttention& shape, int64_t from, int64_t width) {
  const int64_t values = int64_t{shape.heads} / shape.key_heads * shape.value_dim;
  const int64_t group = 2 * (int64_t{shape.key_dim} + values);
  for (int64_t k = 0; k < shape.key_heads; ++k) add_run(order, k * group + from, width);
}

Order row_order(TensorChange change, const LinearAttention& shape, int64_t rows) {
  Order order;
  const bool grouped =
      change == TensorChange::kGroupedInputs || change == TensorChange::kGroupedGates;
  if (!grouped && !moves_heads(shape)) {
    add_run(order, 0, rows);
    return order;
  }
  // Short convolutions have no heads.
  const int64_t key = shape.key_dim;
  const int64_t values = int64_t{shape.heads} / shape.key_heads * shape.value_dim;
  switch (change) {
    case TensorChange::kHeadChannels:
      add_run(order, 0, 2 * int64_t{shape.k_width()});
      add_heads(order, shape, 2 * int64_t{shape.k_width()}, shape.value_dim);
      break;
    case TensorChange::kGroupedInputs:
      add_groups(order, shape, 0, key);
      add_groups(order, shape, key, key);
      add_groups(order, shape, 2 * key, values);
      break;
    case TensorChange::kGroupedGates:
      add_groups(order, shape, 2 * key + values, values);
      break;
    default:
      add_heads(order, shape, 0, rows / shape.heads);
  }
  return order;
}

Expected<TensorData> with_rows(const TensorView& from, const Order& order) {
  const auto bytes = static_cast<size_t>(from.row_bytes());
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(bytes * order.size()));
  for (size_t row = 0; row < order.size(); ++row) {
    std::memcpy(out.owned.data() + row * bytes, from.row(order[row]), bytes);
  }
  out.view = {from.dtype, Device::kCpu, {from.shape[0], std::ssize(order), 1, 1}, out.owned.data()};
  return out;
}

Expected<TensorData> with_columns(const LinearAttention& shape, const TensorView& from) {
  assert(keeps_blocks(TensorChange::kHeadColumns, shape, dtype_info(from.dtype).block_elements));
  if (!moves_heads(shape)) {
    TensorData same;
    same.view = from;
    return same;
  }
  const auto head = static_cast<size_t>(dtype_bytes(from.dtype, shape.value_dim));
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(static_cast<size_t>(from.bytes())));
  std::byte* to = out.owned.data();
  for (int64_t row = 0; row < from.rows(); ++row) {
    for (int64_t h = 0; h < shape.heads; ++h, to += head) {
      std::memcpy(to, from.row(row) + static_cast<size_t>(source_head(shape, h)) * head, head);
    }
  }
  out.view = from;
  out.view.data = out.owned.data();
  return out;
}

}  // namespace

bool keeps_blocks(TensorChange change, const LinearAttention& shape, int64_t block) {
  return change != TensorChange::kHeadColumns || !moves_heads(shape) ||
         shape.value_dim % block == 0;
}

bool arranges_heads(TensorChange change) {
  return change >= TensorChange::kHeadRows;
}

int64_t arranged_rows(TensorChange change, const LinearAttention& shape, int64_t rows) {
  const int64_t values = shape.v_width();
  switch (change) {
    case TensorChange::kHeadChannels:
      return rows == shape.channels() ? rows : -1;
    case TensorChange::kGroupedInputs:
      return rows == shape.channels() + values ? shape.channels() : -1;
    case TensorChange::kGroupedGates:
      return rows == shape.channels() + values ? values : -1;
    case TensorChange::kHeadColumns:
      return rows;
    case TensorChange::kHeadNorm:
      return rows == values ? rows : -1;
    default:
      return shape.heads > 0 && rows % shape.heads == 0 ? rows : -1;
  }
}

Shape arranged_vector(TensorChange change, const LinearAttention& shape, int64_t length) {
  const bool is_state_space = shape.kind == LinearKind::kStateSpace;
  if (change == TensorChange::kHeadNumbers ||
      (change == TensorChange::kHeadRates && is_state_space)) {
    return {1, length, 1, 1};
  }
  if (change == TensorChange::kHeadNorm) {
    return {length / shape.key_heads, shape.key_heads, 1, 1};
  }
  return {length, 1, 1, 1};
}

Expected<TensorData> arrange_heads(TensorChange change, const LinearAttention& shape,
                                   const TensorView& from) {
  if (change == TensorChange::kHeadColumns) return with_columns(shape, from);
  TensorView rows = from;
  const bool is_vector = from.shape[1] == 1;
  if (is_vector) std::swap(rows.shape[0], rows.shape[1]);
  AERIE_ASSIGN_OR_RETURN(TensorData out, with_rows(rows, row_order(change, shape, rows.shape[1])));
  if (is_vector) std::swap(out.view.shape[0], out.view.shape[1]);
  if (change == TensorChange::kHeadRates) {
    for (float& rate : out.owned.as<float>()) rate = -std::exp(rate);
  }
  return out;
}

}  // namespace aerie
