// The grids of ggml's IQ2 and IQ3 formats: which magnitudes eight or four consecutive weights can
// have together. A block names a point of its grid by the point's number.
#pragma once

#include <array>
#include <cstdint>

namespace aerie {

// Point i has the magnitude of weight j in byte j, the lowest first: 0, 1 or 2 (8, 25 and 43) in
// IQ2; 0 to 7 (4, 12, 20, 28, 36, 44, 52 and 62 in IQ3_XXS, 1, 3, .. 15 in IQ3_S) in IQ3.
extern const std::array<uint64_t, 256> kIq2XxsGrid;
extern const std::array<uint64_t, 512> kIq2XsGrid;
extern const std::array<uint64_t, 1024> kIq2SGrid;
extern const std::array<uint32_t, 256> kIq3XxsGrid;
extern const std::array<uint32_t, 512> kIq3SGrid;

}  // namespace aerie
