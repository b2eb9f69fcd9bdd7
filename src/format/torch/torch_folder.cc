#include "format/torch/torch_folder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "format/input_file.h"
#include "format/json.h"
#include "format/name_index.h"
#include "format/output_file.h"
#include "format/safetensors/safetensors_write.h"
#include "format/several_files.h"
#include "format/text.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "pytorch_model.bin";
constexpr const char* kIndex = "pytorch_model.bin.index.json";
constexpr const char* kConfig = "config.json";
constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::array<std::string_view, 5> kTrainers = {"optimizer.", "scheduler.", "training_args.",
                                                       "rng_state", "scaler."};

bool has_torch_name(const fs::path& path) {
  const std::string extension = path.extension();
  return extension == ".bin" || extension == ".pt" || extension == ".pth";
}

bool is_trainers(const std::string& name) {
  return std::ranges::any_of(kTrainers,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The shards that an index names.
Expected<std::vector<std::string>> read_index(const fs::path& folder) {
  const std::string path = folder / kIndex;
  AERIE_ASSIGN_OR_RETURN(const Json json, read_json(path));
  AERIE_ASSIGN_OR_RETURN(const JsonObject top, JsonObject::view(json, path));
  AERIE_ASSIGN_OR_RETURN(const JsonObject weight_map, top.object("weight_map"));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map.json().items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : std::string();
    if (name.empty() || name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos ||
        !has_torch_name(name)) {
      return weight_map.error(StatusCode::kInvalidData, tensor,
                              "is not the name of a .bin, .pt or .pth file in the same folder");
    }
    shards.insert((folder / name).string());
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

Expected<std::vector<std::string>> files_of(const std::string& path) {
  if (!is_folder(path)) return std::vector<std::string>{path};
  const fs::path folder = path;
  if (is_there(folder / kSingle)) return std::vector<std::string>{(folder / kSingle).string()};
  if (is_there(folder / kIndex)) return read_index(folder);
  std::vector<std::string> names = names_in(path);
  std::erase_if(names,
                [](const std::string& name) { return !has_torch_name(name) || is_trainers(name); });
  if (names.empty()) return not_found("{}: holds no .bin, .pt or .pth file of tensors", path);
  if (names.size() == 1) return std::vector<std::string>{(folder / names.front()).string()};
  return several_files(path, "PyTorch", names);
}

// Names and texts of what is no tensor: of several files that say something, the first counts.
std::vector<std::pair<std::string_view, std::string_view>> values_of(const TorchFolder& folder) {
  std::vector<std::pair<std::string_view, std::string_view>> values;
  std::set<std::string_view> names;
  for (const TorchFile& file : folder.files()) {
    for (const auto& [name, text] : file.values()) {
      if (names.insert(name).second) values.emplace_back(name, text);
    }
  }
  return values;
}

class TorchModelFile final : public ModelFile {
 public:
  explicit TorchModelFile(TorchFolder folder)
      : ModelFile(folder.name()), folder_(std::move(folder)) {
    Metadata metadata;
    for (const auto& [name, text] : values_of(folder_)) {
      metadata.emplace_back(name, MetadataValue{"string", MetadataScalar(text)});
    }
    std::vector<TensorInfo> infos;
    for (const TorchTensor* tensor : folder_.tensors()) infos.push_back(describe(*tensor));
    set_contents(std::move(metadata), std::move(infos));
  }

  std::string format() const override { return "PyTorch"; }
  int64_t file_bytes() const override { return folder_.file_bytes(); }
  Status check_intact() const override { return folder_.check(); }

 private:
  static TensorInfo describe(const TorchTensor& tensor) {
    TensorInfo info;
    info.name = tensor.name;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const size_t place = std::min(i, info.shape.size() - 1);
      info.shape[place] *= tensor.shape[tensor.shape.size() - 1 - i];
    }
    const SafetensorsTypeInfo& type = safetensors_type_info(tensor.type);
    if (type.dtype && tensor.elements() > 0) {
      set_type(info, *type.dtype);
    } else {
      info.type_name = type.name;
      info.bytes = tensor.bytes();
    }
    return info;
  }

  Expected<TensorData> read_tensor(const TensorInfo& info) const override {
    const TorchTensor& tensor = *folder_.tensors()[static_cast<size_t>(&info - tensors().data())];
    TensorData data;
    data.view = {*info.dtype, Device::kCpu, info.shape, tensor.storage.data()};
    if (tensor.is_contiguous()) return data;
    AERIE_ASSIGN_OR_RETURN(data.owned, Buffer::allocate(static_cast<size_t>(tensor.bytes())));
    data.view.data = data.owned.data();
    size_t done = 0;
    AERIE_RETURN_IF_ERROR(tensor.read([&](std::span<const std::byte> part) {
      std::memcpy(data.owned.data() + done, part.data(), part.size());
      done += part.size();
      return Status();
    }));
    return data;
  }

  TorchFolder folder_;
};

Expected<int64_t> write_tensors(const TorchFolder& folder, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  for (const TorchTensor* tensor : folder.tensors()) {
    entries.push_back({tensor->name, tensor->type, tensor->shape});
  }
  std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  for (const auto& [name, text] : values_of(folder)) {
    if (name != "format") metadata.emplace_back(name, text);
  }
  return write_safetensors(path, entries, metadata, [&](size_t i, const ByteSink& sink) {
    const Status status = folder.tensors()[i]->read(sink);
    folder.release(folder.tensors()[i]->storage);
    AERIE_RETURN_IF_ERROR(folder.check());
    return status;
  });
}

Status copy_file(const std::string& from, const std::string& to) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(from));
  return write_file(to, text);
}

Expected<int64_t> write_folder(const TorchFolder& folder, const std::string& output) {
  const fs::path source =
      is_folder(folder.name()) ? fs::path(folder.name()) : fs::path(folder.name()).parent_path();
  AERIE_ASSIGN_OR_RETURN(const int64_t bytes,
                         write_tensors(folder, (fs::path(output) / "model.safetensors").string()));
  const fs::path config = source / kConfig, copy = fs::path(output) / kConfig;
  std::error_code ignored;
  if (is_there(config) && !fs::equivalent(config, copy, ignored)) {
    AERIE_RETURN_IF_ERROR(copy_file(config.string(), copy.string()));
  }
  return bytes;
}

}  // namespace

bool is_torch_path(const std::string& path) {
  if (!is_folder(path)) return has_torch_name(path);
  const std::vector<std::string> names = names_in(path);
  return std::ranges::any_of(names, has_torch_name) &&
         std::ranges::none_of(names, [](const std::string& name) {
           return name.ends_with(kSafetensors) || name.ends_with(".gguf");
         });
}

Expected<TorchFolder> TorchFolder::open(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> files, files_of(path));
  TorchFolder folder(path);
  for (const std::string& file : files) {
    AERIE_ASSIGN_OR_RETURN(TorchFile opened, TorchFile::open(file));
    folder.files_.push_back(std::move(opened));
  }
  for (const TorchFile& file : folder.files_) {
    for (const TorchTensor& tensor : file.tensors()) folder.tensors_.push_back(&tensor);
  }
  NameIndex index;
  const auto twin =
      index.build(static_cast<uint32_t>(folder.tensors_.size()),
                  [&](uint32_t i) -> std::string_view { return folder.tensors_[i]->name; });
  if (!twin) return folder;
  return invalid_data("{}: tensor '{}' is in two files", path, printable(*twin));
}

int64_t TorchFolder::file_bytes() const {
  int64_t bytes = 0;
  for (const TorchFile& file : files_) bytes += file.file_bytes();
  return bytes;
}

Status TorchFolder::check() const {
  for (const TorchFile& file : files_) AERIE_RETURN_IF_ERROR(file.check());
  return {};
}

void TorchFolder::release(std::span<const std::byte> data) const {
  for (const TorchFile& file : files_) file.release(data);
}

Expected<int64_t> convert_torch(const std::string& input, const std::string& output) {
  const bool is_file = output.ends_with(kSafetensors) && !is_folder(output);
  const bool has_folder = is_folder(output);
  if (!is_file && !has_folder && (is_there(output) || fs::path(output).has_extension())) {
    return invalid_argument(
        "{}: PyTorch's files become safetensors; name a folder, or a file ending in .safetensors, "
        "which convert further",
        output);
  }
  AERIE_ASSIGN_OR_RETURN(const TorchFolder folder, TorchFolder::open(input));
  if (is_file) return write_tensors(folder, output);
  std::error_code error;
  if (!has_folder && !fs::create_directory(output, error)) {
    return invalid_argument("{}: cannot make this folder: {}", output, error.message());
  }
  Expected<int64_t> bytes = write_folder(folder, output);
  if (!bytes.ok() && !has_folder) fs::remove_all(output, error);
  return bytes;
}

Expected<std::unique_ptr<ModelFile>> open_torch_model(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(TorchFolder folder, TorchFolder::open(path));
  return std::unique_ptr<ModelFile>(std::make_unique<TorchModelFile>(std::move(folder)));
}

}  // namespace aerie
