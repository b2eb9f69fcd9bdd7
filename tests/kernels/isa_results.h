// What a backend computes, so that instruction sets can be compared bit by bit: in one process
// (isa_agreement_test.cc), or across processors by digests (isa_digest.cc).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "kernels/backend.h"

namespace aerie::kernels {

// Hears of each result: what it is of, and the numbers (codes and sums, too, as floats).
using ResultVisitor = std::function<void(const std::string& name, std::span<const float> values)>;

// The same inputs in every process and for every backend.
void visit_products(const Backend& backend, DType dtype, std::span<const int64_t> row_counts,
                    const ResultVisitor& visit);
void visit_row_operations(const Backend& backend, const ResultVisitor& visit);
void visit_attention(const Backend& backend, const ResultVisitor& visit);
void visit_long_keys(const Backend& backend, const ResultVisitor& visit);
void visit_linear_attention(const Backend& backend, const ResultVisitor& visit);

}  // namespace aerie::kernels
