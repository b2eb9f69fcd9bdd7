#include "format/converted_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <utility>

#include "base/errors.h"
#include "format/draft_keys.h"
#include "format/gguf/gguf_types.h"
#include "format/text.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

// Converted at once by one thread: a multiple of every block length.
constexpr int64_t kChunk = 4096;

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

bool is_matrix(const TensorInfo& tensor) {
  constexpr std::string_view kOthers[] = {"norm",        "ffn_gate_inp", "position_embd",
                                          "token_types", "ssm_conv1d",   "ssm_alpha",
                                          "ssm_beta",    "ssm_ba",       "shortconv.conv"};
  const std::string_view name = tensor.name;
  return name.ends_with(".weight") && tensor.elements() > tensor.shape[0] &&
         std::ranges::none_of(kOthers, [name](std::string_view part) {
           return name.find(part) != std::string_view::npos;
         });
}

// The number that "general.file_type" has for a model of mostly this type (enum llama_ftype of
// llama.cpp's include/llama.h). Requires can_quantize(type).
uint32_t file_type_of(DType type) {
  constexpr std::pair<DType, uint32_t> kTypes[] = {
      {DType::kF32, 0},  {DType::kF16, 1},  {DType::kBF16, 32}, {DType::kQ4_0, 2},
      {DType::kQ4_1, 3}, {DType::kQ8_0, 7}, {DType::kQ5_0, 8},  {DType::kQ5_1, 9},
  };
  for (const auto& [known, number] : kTypes) {
    if (known == type) return number;
  }
  assert(false);
  return 0;
}

Status quantised_already(const ModelFile& file, const TensorInfo& tensor, DType wanted) {
  return not_supported(
      "{}: tensor '{}' is of type {} already; converting it to {} would lose twice. Start from a "
      "file of f32, f16 or bf16 weights, or allow requantising",
      file.name(), printable(file.origin_of(tensor.name)), tensor.type_name,
      dtype_info(wanted).name);
}

void lower_to(std::atomic<int64_t>& lowest, int64_t value) {
  int64_t old = lowest;
  while (value < old && !lowest.compare_exchange_weak(old, value)) {
  }
}

}  // namespace

std::optional<DType> converted_type(const TensorInfo& tensor, DType wanted, bool drafts) {
  if (!tensor.dtype || !is_matrix(tensor)) return tensor.dtype;
  const bool end = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
  const bool four_bits = wanted == DType::kQ4_0 || wanted == DType::kQ4_1;
  if (end && four_bits && !drafts) wanted = DType::kQ8_0;
  if (tensor.shape[0] % dtype_info(wanted).block_elements == 0) return wanted;
  return tensor.dtype == DType::kBF16 ? DType::kBF16 : DType::kF16;
}

// Rows follow each other and consist of whole blocks, so a tensor is one long row.
Expected<TensorData> convert_values(const TensorView& from, DType type, ThreadPool* pool) {
  const int64_t elements = from.elements();
  TensorData made;
  AERIE_ASSIGN_OR_RETURN(made.owned,
                         Buffer::allocate(static_cast<size_t>(dtype_bytes(type, elements))));
  const auto read_chunk = [&](int64_t first, std::array<float, kChunk>& floats) {
    const int64_t count = std::min(kChunk, elements - first);
    dequantize(from.dtype, from.data + dtype_bytes(from.dtype, first), count, floats.data());
    return count;
  };
  std::atomic<int64_t> misfit = elements;  // the first one
  const auto convert_chunks = [&](int64_t begin, int64_t end, int) {
    std::array<float, kChunk> floats;
    for (int64_t first = begin * kChunk; first < std::min(end * kChunk, elements);
         first += kChunk) {
      const int64_t count = read_chunk(first, floats);
      const int64_t bad = find_unquantizable(type, floats.data(), count);
      if (bad >= 0) return lower_to(misfit, first + bad);
      quantize(type, floats.data(), count, made.owned.data() + dtype_bytes(type, first));
    }
  };
  const int64_t chunks = (elements + kChunk - 1) / kChunk;
  if (pool != nullptr) {
    pool->parallel_for(chunks, 1, convert_chunks);
  } else {
    convert_chunks(0, chunks, 0);
  }
  if (misfit == elements) {
    made.view = {type, Device::kCpu, from.shape, made.owned.data()};
    return made;
  }
  std::array<float, kChunk> floats;
  read_chunk(misfit / kChunk * kChunk, floats);
  return invalid_data("element {} of row {} is {}, which {} cannot hold",
                      misfit % from.row_length(), misfit / from.row_length(),
                      floats[static_cast<size_t>(misfit % kChunk)], dtype_info(type).name);
}

ConvertedFile::ConvertedFile(std::unique_ptr<ModelFile> file, DType type, ThreadPool& pool)
    : ModelFile(file->name()), file_(std::move(file)), type_(type), pool_(pool) {}

Expected<std::unique_ptr<ConvertedFile>> ConvertedFile::wrap(std::unique_ptr<ModelFile> file,
                                                             const Conversion& conversion,
                                                             ThreadPool& pool) {
  const DType type = conversion.type;
  if (!can_quantize(type)) {
    return invalid_argument("there is no conversion to {}", dtype_info(type).name);
  }
  std::unique_ptr<ConvertedFile> made(new ConvertedFile(std::move(file), type, pool));
  const ModelFile& source = *made->file_;
  std::vector<TensorInfo> tensors(source.tensors().begin(), source.tensors().end());
  const bool drafts = source.find(kDraftIdsKey) != nullptr;
  for (TensorInfo& tensor : tensors) {
    const auto wanted = converted_type(tensor, type, drafts);
    if (wanted == tensor.dtype) continue;
    if (!is_float(*tensor.dtype) && !conversion.requantize) {
      return quantised_already(source, tensor, *wanted);
    }
    set_type(tensor, *wanted);
  }
  for (const auto& [key, value] : source.metadata()) made->builder_.add(std::string(key), value);
  made->builder_.add_u32("general.file_type", file_type_of(type));
  if (!is_float(type)) made->builder_.add_u32("general.quantization_version", 2);
  made->set_contents(made->builder_.release(), std::move(tensors));
  return made;
}

std::string ConvertedFile::format() const {
  return fmt::format("{}, converted to {}", file_->format(), dtype_info(type_).name);
}

Expected<TensorData> ConvertedFile::read_tensor(const TensorInfo& tensor) const {
  AERIE_ASSIGN_OR_RETURN(TensorData source, file_->read(tensor.name));
  if (source.view.dtype == *tensor.dtype) return source;
  const std::lock_guard lock(pool_mutex_);
  Expected<TensorData> made = convert_values(source.view, *tensor.dtype, &pool_);
  file_->release(source.view);
  if (made.ok()) return made;
  AERIE_RETURN_IF_ERROR(file_->check_intact());
  return made.status().with_context(
      fmt::format("{}: tensor '{}'", name(), printable(origin_of(tensor.name))));
}

}  // namespace aerie
