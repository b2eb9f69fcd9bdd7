#include "format/safetensors/quantized_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "format/input_file.h"
#include "format/json.h"
#include "format/output_file.h"
#include "format/safetensors/int4_weights.h"
#include "format/safetensors/int8_weights.h"
#include "format/safetensors/safetensors_folder.h"
#include "format/safetensors/safetensors_write.h"
#include "format/text.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kQuantization = "quantization_config";
constexpr std::string_view kWeight = ".weight";
// Of files with weights, in whatever form, and lists of such.
constexpr std::array<std::string_view, 6> kWeightFiles = {".safetensors", ".index.json", ".gguf",
                                                          ".bin",         ".pt",         ".pth"};
constexpr int64_t kChunk = int64_t{1} << 18;  // elements that are converted at once

enum class Part : uint8_t { kWhole, kHalf, kCodes, kScales, kShape };

// What one tensor of the output is made of.
struct Source {
  const SafetensorsTensor* tensor = nullptr;
  Part part = Part::kWhole;
};

struct Plan {
  std::vector<SafetensorsEntry> entries;
  std::vector<Source> sources;       // of the entries
  std::vector<std::string> ignored;  // modules

  void add(std::string name, SafetensorsType type, std::vector<int64_t> shape, Source source) {
    entries.push_back({std::move(name), type, std::move(shape)});
    sources.push_back(source);
  }
};

bool is_matrix(const SafetensorsTensor& tensor) {
  return safetensors_type_info(tensor.type).dtype && tensor.shape.size() == 2 &&
         tensor.shape[0] > 1 && tensor.shape[1] > 0 && tensor.name.ends_with(kWeight);
}

// The matrix that chooses among experts, or by how much linear attention forgets: small, and it
// decides much.
bool decides(std::string_view name) {
  constexpr std::string_view kEnds[] = {".mlp.gate.weight",     ".block_sparse_moe.gate.weight",
                                        ".router.layer.weight", ".mlp.router.weight",
                                        ".router.proj.weight",  ".feed_forward.gate.weight",
                                        ".in_proj_a.weight",    ".in_proj_b.weight",
                                        ".in_proj_ba.weight"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

void plan_matrix(const SafetensorsTensor& tensor, DType type, Plan& plan) {
  const int64_t n = tensor.shape[0], k = tensor.shape[1];
  if (type == DType::kQ8_0) {
    plan.add(tensor.name, SafetensorsType::kI8, {n, k}, {&tensor, Part::kCodes});
  } else {
    plan.add(tensor.name + "_packed", SafetensorsType::kI32, {n, k / 8}, {&tensor, Part::kCodes});
    plan.add(tensor.name + "_shape", SafetensorsType::kI64, {2}, {&tensor, Part::kShape});
  }
  plan.add(tensor.name + "_scale", SafetensorsType::kF16, {n, k / kInt8Group},
           {&tensor, Part::kScales});
}

Plan plan_tensors(const SafetensorsFolder& folder, DType type) {
  Plan plan;
  for (const SafetensorsTensor* tensor : folder.tensors()) {
    const std::string& name = tensor->name;
    if (decides(name)) plan.ignored.push_back(name.substr(0, name.size() - kWeight.size()));
    if (!is_matrix(*tensor) || decides(name)) {
      plan.add(name, tensor->type, tensor->shape, {tensor, Part::kWhole});
      continue;
    }
    const int64_t n = tensor->shape[0], k = tensor->shape[1];
    if (k % kInt8Group == 0) {
      plan_matrix(*tensor, type, plan);
      continue;
    }
    plan.ignored.push_back(name.substr(0, name.size() - kWeight.size()));
    const bool is_float = tensor->type == SafetensorsType::kF32;
    plan.add(name, is_float ? SafetensorsType::kF16 : tensor->type, {n, k},
             {tensor, is_float ? Part::kHalf : Part::kWhole});
  }
  return plan;
}

// Codes or scales of some rows.
Status write_integers(std::span<const float> values, int64_t k, DType type, bool codes,
                      const ByteSink& sink) {
  if (type == DType::kQ8_0) {
    AERIE_ASSIGN_OR_RETURN(const Int8Rows rows, quantize_rows_int8(values, k));
    return codes ? sink(std::as_bytes(std::span(rows.codes)))
                 : sink(std::as_bytes(std::span(rows.scales)));
  }
  AERIE_ASSIGN_OR_RETURN(const Int4Rows rows, quantize_rows_int4(values, k));
  return codes ? sink(std::as_bytes(std::span(rows.codes)))
               : sink(std::as_bytes(std::span(rows.scales)));
}

Status write_part(const Source& source, DType quantized, const ByteSink& sink) {
  const SafetensorsTensor& tensor = *source.tensor;
  if (source.part == Part::kWhole) return sink(tensor.data);
  if (source.part == Part::kShape) return sink(std::as_bytes(std::span(tensor.shape)));
  const DType type = *safetensors_type_info(tensor.type).dtype;
  const DType wanted = source.part == Part::kHalf ? DType::kF16 : quantized;
  const int64_t n = tensor.shape[0], k = tensor.shape[1];
  const int64_t step = std::max<int64_t>(1, kChunk / k);
  std::vector<float> values;
  std::vector<uint16_t> halves;
  for (int64_t row = 0; row < n; row += step) {
    const int64_t count = std::min(step, n - row) * k;
    values.resize(static_cast<size_t>(count));
    dequantize(type, tensor.data.data() + dtype_bytes(type, row * k), count, values.data());
    if (const int64_t bad = find_unquantizable(wanted, values.data(), count); bad >= 0) {
      return invalid_data("tensor '{}': element {} of row {} is {}, which {} cannot hold",
                          printable(tensor.name), bad % k, row + bad / k,
                          values[static_cast<size_t>(bad)], dtype_info(wanted).name);
    }
    if (source.part == Part::kHalf) {
      halves.resize(values.size());
      quantize(DType::kF16, values.data(), count, halves.data());
      AERIE_RETURN_IF_ERROR(sink(std::as_bytes(std::span(halves))));
      continue;
    }
    AERIE_RETURN_IF_ERROR(write_integers(values, k, quantized, source.part == Part::kCodes, sink));
  }
  return {};
}

// What the writers of the shards had to say; of several that say something, the first counts.
std::vector<std::pair<std::string, std::string>> metadata_of(const SafetensorsFolder& folder) {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::set<std::string_view> keys;
  for (const SafetensorsFile& shard : folder.shards()) {
    for (const auto& [key, value] : shard.metadata()) {
      if (keys.insert(key).second) metadata.emplace_back(key, value);
    }
  }
  if (keys.insert("format").second) metadata.emplace_back("format", "pt");
  return metadata;
}

// An empty object if there is none.
Expected<Json> read_config(const fs::path& path) {
  Expected<Json> json = read_json(path);
  if (!json.ok() && json.status().code() == StatusCode::kNotFound) return Json(Json::object());
  if (!json.ok()) return json.status();
  AERIE_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::view(*json, path));
  if (!config.has(kQuantization)) return json;
  return config.error(StatusCode::kUnsupported, kQuantization,
                      "says that the weights are quantised already; converting them again would "
                      "lose twice. Start from a folder of F32, F16 or BF16 weights");
}

bool is_copied(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename();
  std::error_code ignored;
  return entry.is_regular_file(ignored) && !name.starts_with('.') && name != kConfig &&
         std::ranges::none_of(kWeightFiles,
                              [&](std::string_view end) { return name.ends_with(end); });
}

Status copy_others(const fs::path& from, const fs::path& to) {
  std::error_code error;
  for (auto it = fs::directory_iterator(from, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (!is_copied(*it)) continue;
    AERIE_ASSIGN_OR_RETURN(const std::string file, read_file(it->path()));
    AERIE_RETURN_IF_ERROR(write_file(to / it->path().filename(), file));
  }
  if (!error) return {};
  return invalid_argument("{}: cannot list this folder: {}", from.string(), error.message());
}

Expected<int64_t> write_tensors(const SafetensorsFolder& folder, const Plan& plan, DType type,
                                const fs::path& path) {
  return write_safetensors(path, plan.entries, metadata_of(folder),
                           [&](size_t i, const ByteSink& sink) {
                             const Status status = write_part(plan.sources[i], type, sink);
                             folder.release(plan.sources[i].tensor->data);
                             AERIE_RETURN_IF_ERROR(folder.check());
                             return status.with_context(folder.name());
                           });
}

}  // namespace

Expected<int64_t> write_quantized_folder(const std::string& input, const std::string& output,
                                         DType type) {
  if (type != DType::kQ8_0 && type != DType::kQ4_0) {
    return invalid_argument("folders of safetensors are written in q8_0 or q4_0, not in {}",
                            dtype_info(type).name);
  }
  std::error_code error;
  const bool whole = fs::is_directory(input, error);
  const fs::path from = whole ? fs::path(input) : fs::path(input).parent_path();
  const fs::path to = output;
  if (fs::exists(to, error) && !(fs::is_directory(to, error) && fs::is_empty(to, error))) {
    return invalid_argument("{}: is there already; name a new folder, or an empty one", output);
  }
  AERIE_ASSIGN_OR_RETURN(const SafetensorsFolder folder, SafetensorsFolder::open_any(input));
  AERIE_ASSIGN_OR_RETURN(Json config, read_config(from / kConfig));
  const Plan plan = plan_tensors(folder, type);
  config[kQuantization] = type == DType::kQ8_0 ? int8_quantization_config(plan.ignored)
                                               : int4_quantization_config(plan.ignored);
  if (fs::create_directory(to, error); error) {
    return invalid_argument("{}: cannot make this folder: {}", output, error.message());
  }
  const auto write = [&]() -> Expected<int64_t> {
    const std::string text = config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    AERIE_RETURN_IF_ERROR(write_file(to / kConfig, text));
    if (whole) AERIE_RETURN_IF_ERROR(copy_others(from, to));
    return write_tensors(folder, plan, type, to / "model.safetensors");
  };
  Expected<int64_t> bytes = write();
  if (!bytes.ok()) fs::remove_all(to, error);
  return bytes;
}

}  // namespace aerie
