#include "measure/models/upcycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "format/gguf/gguf_write.h"
#include "format/gguf/metadata_builder.h"
#include "measure/models/random_weights.h"
#include "tensor/quantize.h"

namespace aerie::measure {
namespace {

constexpr std::string_view kArchitecture = "llama";  // whose files may have experts, too
constexpr std::string_view kRouter = "ffn_gate_inp.weight";
constexpr std::string_view kStacked = "_exps";
constexpr int kMostExperts = 256;

// The name without its layer where it is a matrix of the feed-forward, else empty: "ffn_up".
std::string_view feed_forward(std::string_view name) {
  for (const std::string_view part : {"ffn_gate", "ffn_up", "ffn_down"}) {
    if (name.ends_with(std::string(".") + std::string(part) + ".weight")) return part;
  }
  return {};
}

class Upcycled final : public ModelFile {
 public:
  Upcycled(const ModelFile& dense, const UpcycleOptions& options)
      : ModelFile(fmt::format("{}, {} experts", dense.name(), options.experts)),
        dense_(dense),
        options_(options) {
    add_metadata();
    for (const TensorInfo& tensor : dense.tensors()) add_tensor(tensor);
    set_contents(metadata_.release(), std::move(tensors_));
  }

  std::string format() const override { return "upcycled"; }
  int64_t file_bytes() const override { return 0; }

 private:
  void add_metadata() {
    for (const auto& [key, value] : dense_.metadata()) metadata_.add(std::string(key), value);
    const std::string prefix = std::string(kArchitecture) + ".";
    metadata_.add_u32(prefix + "expert_count", static_cast<uint32_t>(options_.experts));
    metadata_.add_u32(prefix + "expert_used_count", static_cast<uint32_t>(options_.used));
  }

  void add_tensor(const TensorInfo& tensor) {
    const std::string_view part = feed_forward(tensor.name);
    if (part.empty()) {
      tensors_.push_back(tensor);
      return;
    }
    const std::string layer(tensor.name.substr(0, tensor.name.find(part)));
    TensorInfo stack = tensor;
    stack.name = names_.emplace_back(fmt::format("{}{}{}.weight", layer, part, kStacked));
    stack.shape[2] = options_.experts;
    set_type(stack, options_.spread > 0.0 ? DType::kQ8_0 : *tensor.dtype);
    tensors_.push_back(stack);
    if (part != "ffn_gate") return;
    TensorInfo router;
    router.name = names_.emplace_back(fmt::format("{}{}", layer, kRouter));
    router.shape = {tensor.shape[0], options_.experts, 1, 1};
    set_type(router, DType::kF32);
    tensors_.push_back(router);
  }

  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    const bool is_router = tensor.name.ends_with(kRouter);
    const size_t stacked = tensor.name.find(kStacked);
    if (!is_router && stacked == std::string_view::npos) return dense_.read(tensor.name);
    TensorData data;
    AERIE_ASSIGN_OR_RETURN(data.owned, Buffer::allocate(static_cast<size_t>(tensor.bytes)));
    data.view = {*tensor.dtype, Device::kCpu, tensor.shape, data.owned.data()};
    const auto stream = static_cast<uint64_t>(find_tensor(tensor.name) - tensors().data());
    if (is_router) {
      fill_router(stream, data);
      return data;
    }
    const std::string source = std::string(tensor.name).erase(stacked, kStacked.size());
    AERIE_ASSIGN_OR_RETURN(const TensorData dense, dense_.read(source));
    AERIE_RETURN_IF_ERROR(fill_experts(stream, dense, data));
    dense_.release(dense.view);
    return data;
  }

  // Normal numbers of deviation kWeightDeviation.
  void fill_random(uint64_t stream, int64_t row, std::span<float> out) const {
    random_.fill({options_.seed, stream, static_cast<uint64_t>(row)}, std::ssize(out),
                 std::as_writable_bytes(out).data());
  }

  // So that scores are of about unit size behind a norm.
  void fill_router(uint64_t stream, TensorData& data) const {
    const auto k = static_cast<size_t>(data.view.row_length());
    const double scale = 2.0 / (kWeightDeviation * std::sqrt(static_cast<double>(k)));
    for (int e = 0; e < options_.experts; ++e) {
      const auto row = data.owned.as<float>().subspan(static_cast<size_t>(e) * k, k);
      fill_random(stream, e, row);
      for (float& weight : row) weight *= static_cast<float>(scale);
    }
  }

  Status fill_experts(uint64_t stream, const TensorData& dense, TensorData& data) const {
    const auto* from = static_cast<const std::byte*>(dense.view.data);
    const int64_t rows = dense.view.rows(), k = dense.view.row_length();
    std::vector<float> row(static_cast<size_t>(k)), noise(row.size());
    std::byte* out = data.owned.data();
    const auto spread = static_cast<float>(options_.spread / kWeightDeviation);
    for (int64_t r = 0; r < options_.experts * rows; ++r, out += data.view.row_bytes()) {
      const std::byte* own = from + r % rows * dense.view.row_bytes();
      if (options_.spread == 0.0) {
        std::copy_n(own, dense.view.row_bytes(), out);
        continue;
      }
      dequantize(dense.view.dtype, own, k, row.data());
      fill_random(stream, r, noise);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= 1.0f + spread * noise[i];
      if (find_unquantizable(data.view.dtype, row.data(), k) >= 0) {
        return invalid_argument("--spread {}: weights become too large", options_.spread);
      }
      quantize(data.view.dtype, row.data(), k, out);
    }
    return {};
  }

  const ModelFile& dense_;
  const UpcycleOptions& options_;
  MetadataBuilder metadata_;
  std::deque<std::string> names_;
  std::vector<TensorInfo> tensors_;
  RandomWeights random_{DType::kF32};
};

Status check(const ModelFile& dense, const UpcycleOptions& options) {
  if (options.experts < 1 || options.experts > kMostExperts) {
    return invalid_argument("--experts {}: give 1 to {}", options.experts, kMostExperts);
  }
  if (options.used < 1 || options.used > options.experts) {
    return invalid_argument("--used {}: give 1 to {}", options.used, options.experts);
  }
  if (!std::isfinite(options.spread) || options.spread < 0.0) {
    return invalid_argument("--spread {}: give 0 or more", options.spread);
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view architecture, dense.string("general.architecture"));
  if (architecture != kArchitecture || dense.find("llama.expert_count") != nullptr) {
    return {StatusCode::kUnsupported,
            fmt::format("{}: is no dense Llama; experts can be made of these alone", dense.name())};
  }
  for (const TensorInfo& tensor : dense.tensors()) {
    const bool whole =
        tensor.dtype && tensor.shape[0] % dtype_info(DType::kQ8_0).block_elements == 0;
    if (feed_forward(tensor.name).empty() || whole) continue;
    return {
        StatusCode::kUnsupported,
        fmt::format("{}: tensor {} cannot become experts: its type is not read, or its rows are "
                    "no multiple of 32",
                    dense.name(), tensor.name)};
  }
  return {};
}

}  // namespace

Expected<int64_t> upcycle(const ModelFile& dense, const UpcycleOptions& options) {
  AERIE_RETURN_IF_ERROR(check(dense, options));
  AERIE_RETURN_IF_ERROR(write_gguf(Upcycled(dense, options), options.output));
  std::error_code ignored;
  return static_cast<int64_t>(std::filesystem::file_size(options.output, ignored));
}

}  // namespace aerie::measure
