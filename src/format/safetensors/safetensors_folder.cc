#include "format/safetensors/safetensors_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/files.h"
#include "format/several_files.h"
#include "format/text.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::string_view kFileEnd = ".safetensors";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
constexpr size_t kMaxFileName = 255;

bool holds_pickles(const std::string& folder) {
  return std::ranges::any_of(names_in(folder), [](const fs::path& name) {
    const std::string extension = name.extension();
    return extension == ".bin" || extension == ".pt" || extension == ".pth";
  });
}

std::string only_pickles(const std::string& folder) {
  return fmt::format(
      "only PyTorch's pickle files, which are not read as they are; make safetensors of them with: "
      "aerie inspect {0} --convert {0}",
      printable(folder));
}

// Says what the folder holds in the place of the files that are wanted.
Status nothing_to_read(const std::string& folder) {
  std::string others;
  for (const std::string& name : names_in(folder)) {
    const bool readable = name.ends_with(kFileEnd) || name.ends_with(".gguf");
    if (readable && others.size() < 200) others += (others.empty() ? "" : ", ") + name;
  }
  std::string message = fmt::format("{}: holds neither {} nor {}", folder, kSingle, kIndex);
  if (!others.empty()) {
    message += fmt::format("; there are other models: {}", printable(others, 300));
  } else if (holds_pickles(folder)) {
    message += ", " + only_pickles(folder);
  }
  return not_found(message);
}

std::vector<std::string> files_ending(const std::string& folder, std::string_view end) {
  std::vector<std::string> files = names_in(folder);
  std::erase_if(files, [&](const std::string& name) { return !name.ends_with(end); });
  return files;
}

Status check_shard_name(std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return invalid_data("the shard name '{}' {}", printable(name), why);
  };
  if (name.find('/') != std::string_view::npos || name.find('\\') != std::string_view::npos) {
    return refuse("leads to another folder; a plain file name is wanted");
  }
  if (!name.ends_with(".safetensors")) return refuse("does not end in .safetensors");
  if (name.size() > kMaxFileName) return refuse("is too long");
  if (name.find('\0') != std::string_view::npos) return refuse("contains a NUL byte");
  return Status();
}

// Shard name -> how many tensors the index places there.
using ShardCounts = std::map<std::string_view, size_t>;

Expected<ShardCounts> count_shards(const JsonObject& weight_map) {
  ShardCounts counts;
  for (const auto& [tensor, shard] : weight_map.json().items()) {
    if (!shard.is_string()) {
      return weight_map.error(StatusCode::kInvalidData, tensor,
                              "is a {}; the name of a shard is wanted", shard.type_name());
    }
    ++counts[shard.get_ref<const std::string&>()];
  }
  if (counts.empty()) return invalid_data("{}: 'weight_map' names no tensors", weight_map.file());
  for (const auto& [shard, count] : counts) {
    AERIE_RETURN_IF_ERROR(check_shard_name(shard).with_context(weight_map.file()));
  }
  return counts;
}

// The index's entries by name: a Json object would be searched from its start.
class WeightMap {
 public:
  explicit WeightMap(const Json& json) {
    entries_.reserve(json.size());
    for (const auto& [tensor, shard] : json.items()) {
      entries_.emplace_back(tensor, shard.get_ref<const std::string&>());
    }
    index_.build(static_cast<uint32_t>(entries_.size()),
                 [this](uint32_t i) { return entries_[i].first; });
  }

  // Of the tensors that the index places in `shard`, one that the file lacks.
  std::string_view find_missing(std::string_view shard, const SafetensorsFile& file) const {
    for (const auto& [tensor, its_shard] : entries_) {
      if (its_shard == shard && file.find(tensor) == nullptr) return tensor;
    }
    return {};
  }

  // Every tensor of the file is placed in it; together with the count, that makes them the same.
  Status check(std::string_view shard, const SafetensorsFile& file, size_t count) const {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      const auto entry = index_.find(tensor.name);
      if (!entry) {
        return invalid_data("tensor '{}' is in {}, but the index does not name it",
                            printable(tensor.name), shard);
      }
      if (entries_[*entry].second != shard) {
        return invalid_data("tensor '{}' is in {}, but the index places it in {}",
                            printable(tensor.name), shard, printable(entries_[*entry].second));
      }
    }
    if (file.tensors().size() == count) return Status();
    return invalid_data("the index places tensor '{}' in {}, which does not hold it",
                        printable(find_missing(shard, file)), shard);
  }

 private:
  std::vector<std::pair<std::string_view, std::string_view>> entries_;
  NameIndex index_;
};

}  // namespace

Status SafetensorsFolder::read_index(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const Json json, read_json(path));
  AERIE_ASSIGN_OR_RETURN(const JsonObject top, JsonObject::view(json, path));
  Expected<JsonObject> weight_map = top.object("weight_map");
  if (!weight_map.ok()) return invalid_data(weight_map.status().message());
  AERIE_ASSIGN_OR_RETURN(const ShardCounts counts, count_shards(*weight_map));
  const WeightMap placed(weight_map->json());
  shards_.reserve(counts.size());
  for (const auto& [shard, count] : counts) {
    const std::string shard_path = fs::path(name_) / shard;
    Expected<SafetensorsFile> file = SafetensorsFile::open(shard_path);
    if (file.status().code() == StatusCode::kNotFound) {
      return not_found("{}: shard {} is missing; the index places {} tensors in it", name_,
                       printable(shard), count);
    }
    if (!file.ok()) return file.status();
    AERIE_RETURN_IF_ERROR(placed.check(shard, *file, count).with_context(path));
    shards_.push_back(*std::move(file));
  }
  return Status();
}

void SafetensorsFolder::list_tensors() {
  for (const SafetensorsFile& shard : shards_) {
    for (const SafetensorsTensor& tensor : shard.tensors()) tensors_.push_back(&tensor);
  }
  index_.build(static_cast<uint32_t>(tensors_.size()),
               [this](uint32_t i) { return std::string_view(tensors_[i]->name); });
}

Expected<SafetensorsFolder> SafetensorsFolder::open(const std::string& path) {
  if (!is_folder(path)) {
    return is_there(path) ? invalid_argument("{}: is not a folder", path)
                          : not_found("{}: there is no such folder", path);
  }
  SafetensorsFolder folder(path);
  const fs::path single = fs::path(path) / kSingle, index = fs::path(path) / kIndex;
  if (is_there(single)) {
    AERIE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
    folder.shards_.push_back(std::move(file));
  } else if (is_there(index)) {
    AERIE_RETURN_IF_ERROR(folder.read_index(index));
  } else {
    return nothing_to_read(path);
  }
  folder.list_tensors();
  return folder;
}

Expected<SafetensorsFolder> SafetensorsFolder::open_any(const std::string& path) {
  const bool whole = is_folder(path);
  if (whole && (is_there(fs::path(path) / kSingle) || is_there(fs::path(path) / kIndex))) {
    return open(path);
  }
  SafetensorsFolder folder(path);
  std::string file = path;
  if (whole) {
    std::vector<std::string> files = files_ending(path, kIndexEnd);
    if (files.empty()) files = files_ending(path, kFileEnd);
    if (files.size() > 1) return several_files(path, "safetensors", files);
    if (files.empty() && holds_pickles(path)) {
      return not_supported("{}: holds {}", path, only_pickles(path));
    }
    if (files.empty()) return not_found("{}: holds no safetensors file", path);
    file = fs::path(path) / files.front();
  }
  if (file.ends_with(kIndexEnd)) {
    if (!whole) folder.name_ = fs::path(path).parent_path();
    AERIE_RETURN_IF_ERROR(folder.read_index(file));
  } else {
    AERIE_ASSIGN_OR_RETURN(SafetensorsFile shard, SafetensorsFile::open(file));
    folder.shards_.push_back(std::move(shard));
  }
  folder.list_tensors();
  return folder;
}

std::vector<SourceFile> SafetensorsFolder::sources() const {
  std::vector<SourceFile> files;
  for (const SafetensorsFile& shard : shards_) {
    SourceFile& file = files.emplace_back();
    file.path = shard.name();
    file.modified = shard.modified();
    file.bytes = shard.bytes();
    for (const SafetensorsTensor& tensor : shard.tensors()) file.tensors.push_back(tensor.data);
  }
  return files;
}

int64_t SafetensorsFolder::file_bytes() const {
  int64_t bytes = 0;
  for (const SafetensorsFile& shard : shards_) bytes += shard.file_bytes();
  return bytes;
}

const SafetensorsTensor* SafetensorsFolder::find(std::string_view name) const {
  const auto index = index_.find(name);
  return index ? tensors_[*index] : nullptr;
}

Status SafetensorsFolder::check() const {
  for (const SafetensorsFile& shard : shards_) AERIE_RETURN_IF_ERROR(shard.check());
  return {};
}

void SafetensorsFolder::release(std::span<const std::byte> data) const {
  for (const SafetensorsFile& shard : shards_) shard.release(data);
}

}  // namespace aerie
