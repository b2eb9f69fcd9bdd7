#include "tests/kernels/kernel_testing.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "tests/format/gguf/test_quantize.h"

namespace aerie::kernels {

std::vector<float> uniform_floats(Random& random, int64_t count, float low, float high) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.uniform(low, high);
  return values;
}

ThreadPool& pool_of(int threads) {
  static auto& pools = *new std::map<int, std::unique_ptr<ThreadPool>>();
  std::unique_ptr<ThreadPool>& pool = pools[threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

bool is_float(DType dtype) {
  return dtype_info(dtype).block_elements == 1;
}

std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(isa_name(info.param));
}

std::string dtype_test_name(const testing::TestParamInfo<DType>& info) {
  return std::string(dtype_info(info.param).name);
}

std::string isa_dtype_test_name(const testing::TestParamInfo<std::tuple<Isa, DType>>& info) {
  return std::string(isa_name(std::get<0>(info.param))) + "_" +
         std::string(dtype_info(std::get<1>(info.param)).name);
}

uint64_t digest(std::span<const std::byte> bytes, uint64_t before) {
  uint64_t hash = before ^ bytes.size();
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << "lengths " << a.size() << " and " << b.size();
  }
  size_t different = 0, first = 0;
  for (size_t i = a.size(); i-- > 0;) {
    if (same_bits(a[i], b[i])) continue;
    ++different;
    first = i;
  }
  if (different == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << different << " of " << a.size() << " differ, first at " << first << ": "
         << std::hexfloat << a[first] << " and " << b[first];
}

namespace {

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Mappings that nobody has, by their size: a third of the time went into making them and giving
// them back.
std::map<size_t, std::vector<void*>>& kept_mappings() {
  static auto& kept = *new std::map<size_t, std::vector<void*>>();
  return kept;
}

// Zeros, with a page behind them that cannot be touched.
void* fenced_mapping(size_t usable) {
  std::vector<void*>& kept = kept_mappings()[usable];
  if (!kept.empty()) {
    void* memory = kept.back();
    kept.pop_back();
    ASAN_UNPOISON_MEMORY_REGION(memory, usable);
    std::memset(memory, 0, usable);
    return memory;
  }
  void* memory = mmap(nullptr, usable + page_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  if (mprotect(static_cast<std::byte*>(memory) + usable, page_bytes(), PROT_NONE) != 0) {
    std::abort();
  }
  return memory;
}

// That nobody touches it any more is for the address sanitizer to see.
void give_back(void* memory, size_t usable) {
  constexpr size_t kMostBytes = 16 << 20;  // of one size
  std::vector<void*>& kept = kept_mappings()[usable];
  if ((kept.size() + 1) * usable <= kMostBytes) {
    ASAN_POISON_MEMORY_REGION(memory, usable);
    return kept.push_back(memory);
  }
  munmap(memory, usable + page_bytes());
}

}  // namespace

template <typename T>
Fenced<T>::Fenced(int64_t count) : count_(count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  usable_ = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  mapping_ = fenced_mapping(usable_);
  data_ = reinterpret_cast<T*>(static_cast<std::byte*>(mapping_) + usable_ - bytes);
}

template <typename T>
Fenced<T>::Fenced(std::span<const T> values) : Fenced(static_cast<int64_t>(values.size())) {
  std::copy(values.begin(), values.end(), data_);
}

template <typename T>
Fenced<T>::~Fenced() {
  give_back(mapping_, usable_);
}

template class Fenced<float>;
template class Fenced<std::byte>;
template class Fenced<uint16_t>;
template class Fenced<int32_t>;

namespace {

// Where a block has its scales in f16, from its start; -1 for none.
struct HalfFields {
  int first = -1, second = -1;
};

HalfFields half_fields(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return {0, -1};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108, -1};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208, -1};
    default:
      return {};
  }
}

void put_u16(std::byte* p, uint16_t value) {
  std::memcpy(p, &value, sizeof(value));
}

uint16_t random_scale(Random& random) {
  if (random.below(50) == 0) return 0;
  if (random.below(50) == 0) return static_cast<uint16_t>(1 + random.below(1023));  // subnormal
  // Drawn one by one: the order of a call's arguments differs between processors.
  const float sign = random.below(2) == 0 ? 1.0f : -1.0f;
  const float mantissa = random.uniform(1.0f, 2.0f);
  return f32_to_f16(sign * std::ldexp(mantissa, -static_cast<int>(random.below(8))));
}

Weights empty_weights(DType dtype, int64_t n, int64_t k) {
  return {dtype, n, k, std::vector<std::byte>(static_cast<size_t>(dtype_bytes(dtype, n * k)))};
}

// An exponent of MXFP4: 0 and 1 stand for subnormal scales.
std::byte random_exponent(Random& random) {
  return static_cast<std::byte>(random.below(50) == 0 ? random.below(2) : 120 + random.below(8));
}

void randomize_scales(Weights& w, Random& random) {
  const HalfFields fields = half_fields(w.dtype);
  const auto step = static_cast<size_t>(dtype_info(w.dtype).block_bytes);
  for (size_t at = 0; at < w.bytes.size(); at += step) {
    if (w.dtype == DType::kNVFP4) continue;  // any byte is an ordinary scale
    if (w.dtype == DType::kMXFP4) {
      w.bytes[at] = random_exponent(random);
      continue;
    }
    put_u16(&w.bytes[at + static_cast<size_t>(fields.first)], random_scale(random));
    if (fields.second < 0) continue;
    put_u16(&w.bytes[at + static_cast<size_t>(fields.second)], random_scale(random));
  }
}

}  // namespace

Weights random_weights(DType dtype, int64_t n, int64_t k, Random& random) {
  Weights w = empty_weights(dtype, n, k);
  if (!is_float(dtype)) {
    for (std::byte& b : w.bytes) b = static_cast<std::byte>(random.next() >> 56);
    randomize_scales(w, random);
    return w;
  }
  std::byte* out = w.bytes.data();
  for (int64_t i = 0; i < n * k; ++i, out += dtype_info(dtype).block_bytes) {
    const float value = random.uniform(-1.0f, 1.0f);
    if (dtype == DType::kF32) std::memcpy(out, &value, sizeof(value));
    if (dtype == DType::kF16) put_u16(out, f32_to_f16(value));
    if (dtype == DType::kBF16) put_u16(out, f32_to_bf16(value));
  }
  return w;
}

Weights hostile_weights(DType dtype, int64_t n, int64_t k, Random& random) {
  Weights w = empty_weights(dtype, n, k);
  for (std::byte& b : w.bytes) b = static_cast<std::byte>(random.next() >> 56);
  return w;
}

Weights filled_weights(DType dtype, int64_t n, int64_t k, uint8_t byte, Random& random) {
  Weights w = empty_weights(dtype, n, k);
  std::fill(w.bytes.begin(), w.bytes.end(), static_cast<std::byte>(byte));
  randomize_scales(w, random);
  return w;
}

Weights plausible_weights(DType dtype, int64_t n, int64_t k, Random& random) {
  const std::vector<float> values = uniform_floats(random, n * k, -1.0f, 1.0f);
  static auto& known = *new std::map<std::pair<DType, uint64_t>, std::vector<std::byte>>();
  std::vector<std::byte>& bytes = known[{dtype, digest(std::as_bytes(std::span(values)))}];
  if (bytes.empty()) bytes = test::quantize(dtype, values);
  return {dtype, n, k, bytes};
}

PackedMatrix pack(const Backend& backend, const Weights& weights, int threads) {
  Expected<PackedMatrix> packed = backend.packed(pool_of(threads), weights.view());
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  return packed.ok() ? std::move(packed).value() : PackedMatrix{};
}

namespace {

Activations allocate(int64_t rows, int64_t k, bool int8) {
  Expected<Activations> x = Activations::allocate(rows, k);
  if (!x.ok()) std::abort();
  x->k = k;
  x->rows = rows;
  x->has_int8 = int8;
  x->has_ordered = true;
  return std::move(x).value();
}

// A row's place in its tile.
struct Place {
  int64_t begin, rows, row;  // the tile's first row, its rows, the row in it
};

// By the description in cpu/tiles.h.
Place place_of(int64_t rows, int64_t most, int64_t r) {
  const int64_t tiles = (rows + most - 1) / most;
  for (int64_t t = 0;; ++t) {
    const int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
    if (r < end) return {begin, end - begin, r - begin};
  }
}

// Where a row's codes, scales and sums lie.
struct CodePlace {
  Place at;
  int64_t k, groups;

  CodePlace(const Activations& x, int64_t r)
      : at(place_of(x.rows, x.most_tile_rows, r)), k(x.k), groups(x.k / kActivationGroup) {}
  size_t code(int64_t g, int64_t i) const {
    return static_cast<size_t>(at.begin * k + (g * at.rows + at.row) * kActivationGroup + i);
  }
  size_t scale(int64_t g) const {
    return static_cast<size_t>(at.begin * groups + g * at.rows + at.row);
  }
  size_t sum(int64_t g, int64_t part) const {
    return static_cast<size_t>(at.begin * groups * 3 + (part * groups + g) * at.rows + at.row);
  }
};

void write_ordered(Activations& x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const Place at = place_of(x.rows, 16, r);
    for (int64_t i = 0; i < x.k; ++i) {
      const auto to = static_cast<size_t>(at.begin * x.k + i * at.rows + at.row);
      x.ordered.as<float>()[to] = x.row(r)[i];
    }
  }
}

}  // namespace

Activations activations_of(const Backend& backend, std::span<const float> values, int64_t k,
                           bool int8) {
  Activations x = allocate(static_cast<int64_t>(values.size()) / k, k, int8);
  std::copy(values.begin(), values.end(), x.row(0));
  backend.quantize(pool_of(1), x);
  return x;
}

Activations random_activations(const Backend& backend, int64_t rows, int64_t k, bool int8,
                               Random& random) {
  Activations x = allocate(rows, k, int8);
  std::ranges::fill(x.floats.as<float>(), 0.0f);
  backend.quantize(pool_of(1), x);  // says in which order it reads them
  for (float& value : x.floats.as<float>()) value = random.uniform(-1.0f, 1.0f);
  write_ordered(x);
  if (!int8) return x;
  RowCodes all;
  all.codes.resize(static_cast<size_t>(rows * k));
  all.scales.resize(static_cast<size_t>(rows * (k / kActivationGroup)));
  for (int8_t& code : all.codes) code = static_cast<int8_t>(random.below(255) - 127);
  for (float& scale : all.scales) scale = random.uniform(0.001f, 0.1f);
  write_codes(all, x);
  return x;
}

namespace {

RowCodes codes_of_rows(const Activations& x, int64_t rows) {
  RowCodes all;
  all.codes.reserve(static_cast<size_t>(rows * x.k));
  for (int64_t r = 0; r < rows; ++r) {
    const CodePlace at(x, r);
    for (int64_t g = 0; g < at.groups; ++g) {
      // A group's codes lie side by side.
      const int8_t* codes = x.codes.as<int8_t>().data() + at.code(g, 0);
      all.codes.insert(all.codes.end(), codes, codes + kActivationGroup);
      all.scales.push_back(x.scales.as<float>()[at.scale(g)]);
      for (int64_t part = 0; part < 3; ++part) {
        all.sums.push_back(-x.sums.as<int32_t>()[at.sum(g, part)]);
        all.scaled_sums.push_back(x.scaled_sums.as<float>()[at.sum(g, part)]);
      }
    }
  }
  return all;
}

}  // namespace

RowCodes read_codes(const Activations& x) {
  return codes_of_rows(x, x.rows);
}

void write_codes(const RowCodes& rows, Activations& x) {
  size_t code = 0, scale = 0;
  for (int64_t r = 0; r < x.rows; ++r) {
    const CodePlace at(x, r);
    for (int64_t g = 0; g < at.groups; ++g, ++scale) {
      int sums[3] = {};
      int8_t* codes = x.codes.as<int8_t>().data() + at.code(g, 0);
      for (int64_t i = 0; i < kActivationGroup; ++i, ++code) {
        codes[i] = rows.codes[code];
        sums[i * 2 / kActivationGroup] += rows.codes[code];
        sums[2] += rows.codes[code];
      }
      x.scales.as<float>()[at.scale(g)] = rows.scales[scale];
      for (int64_t part = 0; part < 3; ++part) {
        const int sum = sums[part];
        x.sums.as<int32_t>()[at.sum(g, part)] = -sum;
        x.scaled_sums.as<float>()[at.sum(g, part)] = rows.scales[scale] * static_cast<float>(sum);
      }
    }
  }
}

Activations first_rows(const Activations& x, int64_t rows) {
  Activations first = allocate(rows, x.k, x.has_int8);
  first.most_tile_rows = x.most_tile_rows;
  std::copy_n(x.row(0), rows * x.k, first.row(0));
  write_ordered(first);
  if (x.has_int8) write_codes(codes_of_rows(x, rows), first);
  return first;
}

}  // namespace aerie::kernels
