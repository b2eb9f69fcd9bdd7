// What tensor cores make of products of many kinds, as lines to be compared: this is built for the
// emulator and, with CUDA, for a GPU, and both must write the same.
//   tensor_core_probe [CASES]     of each kind; a line has the kind, the case and a digest of its
//   sums. Behind them those of groups of warps, a tenth as many, where the device has them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/simt/simt.h"
#include "kernels/simt/simt_runtime.h"

namespace {

struct Case {
  uint16_t a[16][16], b[8][16];
  float c[16][8];
};
struct Sums {
  float d[16][8];
};

template <bool kBinary16>
__global__ void probe_kernel(const Case* cases, Sums* sums, int count) {
  const int index = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  if (index >= count) return;
  const Case& from = cases[index];
  const int g = lane / 4, t = lane % 4 * 2;
  uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    const int row = g + i % 2 * 8, k = t + i / 2 * 8;
    a[i] = from.a[row][k] | static_cast<uint32_t>(from.a[row][k + 1]) << 16;
    d[i] = from.c[g + i / 2 * 8][t + i % 2];
  }
  for (int i = 0; i < 2; ++i) {
    b[i] = from.b[g][t + i * 8] | static_cast<uint32_t>(from.b[g][t + i * 8 + 1]) << 16;
  }
  if constexpr (kBinary16) {
    simt::mma_f16(d, a, b);
  } else {
    simt::mma_bf16(d, a, b);
  }
  for (int i = 0; i < 4; ++i) sums[index].d[g + i / 2 * 8][t + i % 2] = d[i];
}

// Of a group of four warps: 64 outputs, 64 rows, 64 of k.
struct GroupCase {
  uint16_t a[64][64];
  alignas(16) uint16_t b[64 * 64];  // as simt::operand_of wants them
  float c[64][64];
};
struct GroupSums {
  float d[64][64];
};
struct GroupShared {
  uint16_t b[64 * 64];
  simt::Barrier there;
};

__global__ void group_kernel(const GroupCase* cases, GroupSums* sums, int count) {
  const int index = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  if (index >= count) return;
  if constexpr (simt::kHasGroups) {
    auto& shared = simt::shared<GroupShared>();
    const GroupCase& from = cases[index];
    if (threadIdx.x == 0) {
      simt::barrier_begin(shared.there, 1);
      simt::barriers_begun();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      simt::barrier_expect(shared.there, sizeof shared.b);
      simt::copy_block(shared.b, from.b, sizeof shared.b, shared.there);
    }
    const int first = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4, t = lane % 4 * 2;
    uint32_t a[4][4];
    float d[8][4];
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      const int row = first + i % 2 * 8, k = i / 4 * 16 + t + i / 2 % 2 * 8;
      a[i / 4][i % 4] = from.a[row][k] | static_cast<uint32_t>(from.a[row][k + 1]) << 16;
    }
    SIMT_UNROLL
    for (int i = 0; i < 32; ++i) {
      d[i / 4][i % 4] = from.c[first + i % 4 / 2 * 8][i / 4 * 8 + t + i % 2];
    }
    simt::barrier_wait(shared.there, 0);
    simt::group_fence();
    SIMT_UNROLL
    for (int step = 0; step < 4; ++step) {
      // Every other case begins at 0.
      simt::group_mma_bf16(d, a[step], simt::operand_of(shared.b) + static_cast<unsigned>(step) * 2,
                           step > 0 || index % 2 == 0);
    }
    simt::group_commit();
    simt::group_wait<0>(d);
    SIMT_UNROLL
    for (int i = 0; i < 32; ++i) {
      sums[index].d[first + i % 4 / 2 * 8][i / 4 * 8 + t + i % 2] = d[i / 4][i % 4];
    }
  }
}

class Maker {
 public:
  Maker(bool binary16, int kind) : binary16_(binary16), kind_(kind), random_(kind * 2 + binary16) {}

  Case make() {
    Case c;
    for (auto& row : c.a) {
      for (uint16_t& x : row) x = number(kind_ == 3);
    }
    for (auto& row : c.b) {
      for (uint16_t& x : row) x = number(kind_ == 2 || kind_ == 3);
    }
    for (auto& row : c.c) {
      for (float& x : row) x = addend();
    }
    return c;
  }

  GroupCase make_group() {
    GroupCase c;
    for (auto& row : c.a) {
      for (uint16_t& x : row) x = number(kind_ == 3);
    }
    for (int row = 0; row < 64; ++row) {
      for (int k = 0; k < 64; ++k) {
        c.b[row * 64 + (k / 8 ^ row % 8) * 8 + k % 8] = number(kind_ == 2 || kind_ == 3);
      }
    }
    for (auto& row : c.c) {
      for (float& x : row) x = addend();
    }
    return c;
  }

 private:
  uint32_t bits(int n) { return static_cast<uint32_t>(random_() >> (64 - n)); }

  // 0: numbers around 1; 1: of all sizes; 2: zeros in b; 3: zeros in both; 4: subnormal ones;
  // 5: infinities and no numbers.
  uint16_t number(bool zeros) {
    if (zeros && bits(2) != 0) return 0;
    const int fraction = binary16_ ? 10 : 7, bias = binary16_ ? 15 : 127;
    const uint32_t sign = bits(1) << 15;
    int exponent = bias + static_cast<int>(bits(2)) - 2;
    if (kind_ == 1 || kind_ == 2) {
      exponent = binary16_ ? static_cast<int>(bits(5)) % 31 : bias - 20 + static_cast<int>(bits(5));
    }
    if (kind_ == 4) exponent = bits(1) != 0 ? 0 : 1 + static_cast<int>(bits(1));
    if (kind_ == 5 && bits(6) == 0) exponent = binary16_ ? 31 : 255;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << fraction |
                                 bits(fraction));
  }

  float addend() {
    if (bits(3) == 0) return 0.0f;
    const int exponent = 127 + (kind_ == 1 || kind_ == 2 ? static_cast<int>(bits(5)) - 16
                                                         : static_cast<int>(bits(3)) - 4);
    const uint32_t word = bits(1) << 31 | static_cast<uint32_t>(exponent) << 23 | bits(23);
    float f;
    std::memcpy(&f, &word, sizeof f);
    return f;
  }

  bool binary16_;
  int kind_;
  std::mt19937_64 random_;
};

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::exit(1);
}

template <typename S>
uint64_t digest(const S& sums) {
  uint64_t hash = 1469598103934665603ull;
  for (const auto& row : sums.d) {
    for (const float f : row) {
      uint32_t word;
      std::memcpy(&word, &f, sizeof word);
      // Which NaN it is does not matter, nor the sign of 0.
      if (f != f) word = 0x7fffffffu;
      if (f == 0.0f) word = 0;
      hash = (hash ^ word) * 1099511628211ull;
    }
  }
  return hash;
}

template <typename C, typename S>
std::vector<S> sums_of(const std::vector<C>& cases, void (*kernel)(const C*, S*, int),
                       unsigned threads, size_t shared_bytes) {
  const auto count = static_cast<int>(cases.size());
  std::vector<S> sums(cases.size());
  void *from = nullptr, *to = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaMalloc(&from, cases.size() * sizeof(C)));
  check(cudaMalloc(&to, cases.size() * sizeof(S)));
  check(cudaMemcpyAsync(from, cases.data(), cases.size() * sizeof(C), cudaMemcpyHostToDevice,
                        stream));
  const simt::Shape shape = {dim3(static_cast<unsigned>(count)), dim3(threads), shared_bytes,
                             false};
  check(
      simt::launch(kernel, shape, stream, static_cast<const C*>(from), static_cast<S*>(to), count));
  check(cudaMemcpyAsync(sums.data(), to, cases.size() * sizeof(S), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  check(cudaFree(from));
  check(cudaFree(to));
  check(cudaStreamDestroy(stream));
  return sums;
}

template <typename S>
void print(const char* name, int kind, const std::vector<S>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    std::printf("%s %d %zu %016llx\n", name, kind, i,
                static_cast<unsigned long long>(digest(sums[i])));
  }
}

void probe(bool binary16, int kind, int count) {
  Maker maker(binary16, kind);
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) cases.push_back(maker.make());
  print(binary16 ? "f16" : "bf16", kind,
        sums_of(cases, binary16 ? probe_kernel<true> : probe_kernel<false>, 32, 0));
}

void probe_groups(int kind, int count) {
  Maker maker(false, kind);
  std::vector<GroupCase> cases;
  for (int i = 0; i < count; ++i) cases.push_back(maker.make_group());
  print("group", kind, sums_of(cases, group_kernel, 128, sizeof(GroupShared)));
}

bool has_groups() {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  return major == 9 && minor == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 500;
  for (const bool binary16 : {false, true}) {
    for (int kind = 0; kind < 6; ++kind) probe(binary16, kind, count);
  }
  for (int kind = 0; kind < 6 && has_groups(); ++kind) probe_groups(kind, count / 10);
  return 0;
}
