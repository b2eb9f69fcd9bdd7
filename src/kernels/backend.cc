#include "kernels/backend.h"

namespace aerie::kernels {

std::string_view isa_name(Isa isa) {
  constexpr std::string_view kNames[] = {"reference", "avx2", "avx512", "avx512bw",
                                         "avxvnni",   "neon", "amx"};
  return kNames[static_cast<size_t>(isa)];
}

Expected<PackedMatrix> Backend::allocate(const TensorView& weights, Arena& arena) const {
  PackedMatrix matrix;
  matrix.dtype = weights.dtype;
  matrix.n = weights.rows();
  matrix.k = weights.row_length();
  AERIE_ASSIGN_OR_RETURN(matrix.data, arena.allocate(static_cast<size_t>(packed_bytes(weights))));
  return matrix;
}

Expected<PackedMatrix> Backend::packed(ThreadPool& pool, const TensorView& weights) const {
  Arena none;
  AERIE_ASSIGN_OR_RETURN(PackedMatrix matrix, allocate(weights, none));
  pack(pool, {&weights, 1}, {&matrix, 1});
  return matrix;
}

}  // namespace aerie::kernels
