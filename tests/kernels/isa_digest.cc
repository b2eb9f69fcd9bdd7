// Prints a digest of each of a set of results of the best instruction set, one a line; nothing
// where there is none. Two processors whose lanes do the same arithmetic print the same.
#include <bit>
#include <cmath>
#include <cstdio>

#include "tests/kernels/isa_results.h"
#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {
namespace {

// FNV-1a; all NaNs are one.
uint64_t digest(std::span<const float> values) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const float value : values) {
    const uint32_t bits = std::isnan(value) ? 0x7FC00000u : std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (bits >> shift & 0xFF)) * 0x100000001B3u;
    }
  }
  return hash;
}

void print(const std::string& name, std::span<const float> values) {
  std::printf("%s: %016llx\n", name.c_str(), static_cast<unsigned long long>(digest(values)));
}

void print_all(const Backend& on) {
  constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 24, 64};
  for (const DType dtype : kAllDTypes) visit_products(on, dtype, kRowCounts, print);
  visit_row_operations(on, print);
  visit_attention(on, print);
  visit_long_keys(on, print);
  visit_linear_attention(on, print);
}

}  // namespace
}  // namespace aerie::kernels

int main() {
  using namespace aerie::kernels;  // NOLINT(google-build-using-namespace)
  if (best_isa() != Isa::kReference) print_all(*backend(best_isa()));
}
