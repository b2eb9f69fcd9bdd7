// Whatever the bytes are, as config.json every family takes them or says why not; what it takes is
// metadata that its reader takes or refuses, and rotary tables of finite numbers.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf/gguf_types.h"
#include "format/json.h"
#include "model/import/hugging_face_import.h"
#include "model/import/weights/quantization_scheme.h"
#include "model/registry.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

void check_message(const Status& status) {
  const std::string& message = status.message();
  require(message.starts_with("fuzz: ") && message.size() < 4000);
  for (const char c : message) require(static_cast<unsigned char>(c) >= 0x20);
}

// What an import makes, with an embedding of no values: enough for a family's reader.
class ImportedMetadata final : public ModelFile {
 public:
  explicit ImportedMetadata(HuggingFaceImport import)
      : ModelFile("fuzz"), import_(std::move(import)) {
    std::vector<TensorInfo> tensors;
    tensors.push_back(info("token_embd.weight", {32, 96, 1, 1}));
    for (const auto& [name, values] : import_.made()) {
      tensors.push_back(info(name, {static_cast<int64_t>(values.size()), 1, 1, 1}));
    }
    set_contents(import_.metadata().release(), std::move(tensors));
  }

  std::string format() const override { return "fuzz"; }
  int64_t file_bytes() const override { return 0; }
  std::string origin_of_key(std::string_view key) const override {
    return import_.origin_of_key(key);
  }

 private:
  static TensorInfo info(std::string_view name, Shape shape) {
    TensorInfo info;
    info.name = name;
    info.shape = shape;
    info.dtype = DType::kF32;
    info.type_name = dtype_info(DType::kF32).name;
    info.bytes = dtype_bytes(DType::kF32, info.elements());
    return info;
  }
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    const auto index = static_cast<size_t>(&tensor - tensors().data());
    require(index > 0);
    const auto* values =
        reinterpret_cast<const std::byte*>(import_.made()[index - 1].second.data());
    return TensorData{{DType::kF32, Device::kCpu, tensor.shape, values}, {}};
  }

  HuggingFaceImport import_;
};

void check_rope(const RopeConfig& rope, int context) {
  const RopeTable table(rope, context);
  require(table.pairs() == rope.dimensions / 2);
  std::vector<float> cos(static_cast<size_t>(table.pairs())), sin(cos.size());
  for (const int position : {0, 1, context - 1}) {
    table.fill(position, cos.data(), sin.data());
    for (size_t i = 0; i < cos.size(); ++i) require(std::isfinite(cos[i]) && std::isfinite(sin[i]));
  }
}

void check_blueprint(const Blueprint& blueprint) {
  const ModelConfig& config = blueprint.config;
  require(config.layers > 0 && config.hidden > 0 && config.ffn > 0 && config.context > 0);
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0);
  require(config.head_dim > 0 && config.head_dim % 16 == 0);
  require(config.vocab == 96);
  require(blueprint.norm_eps > 0 && blueprint.attention_scale >= 0);
  require(blueprint.layers.size() == static_cast<size_t>(config.layers));
  for (const LayerPlan& layer : blueprint.layers) {
    require(layer.window >= 0 && layer.rope < static_cast<int>(blueprint.ropes.size()));
  }
  for (const RopeConfig& rope : blueprint.ropes) check_rope(rope, config.context);
}

void check_family(const ModelFamily& family, const Json& json) {
  auto import = HuggingFaceImport::create(json, "fuzz");
  if (!import.ok()) return check_message(import.status());
  if (const auto scheme = QuantizationScheme::read(import->whole_config()); !scheme.ok()) {
    check_message(scheme.status());
  }
  if (const Status status = family.import(*import); !status.ok()) return check_message(status);
  require(import->layers() <= 4096 && !import->rules().empty());
  const ImportedMetadata file(*std::move(import));
  const auto blueprint = family.read(file);
  if (!blueprint.ok()) return check_message(blueprint.status());
  check_blueprint(*blueprint);
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(hf_config) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = aerie::parse_json(text, "fuzz");
  if (!json.ok()) return 0;
  for (const aerie::ModelFamily* family : aerie::model_families()) {
    if (family->import != nullptr) aerie::check_family(*family, *json);
  }
  return 0;
}
