#include "format/torch/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <unordered_set>

#include "base/errors.h"
#include "format/byte_reader.h"
#include "format/text.h"
#include "format/torch/pickle.h"
#include "format/torch/torch_types.h"
#include "format/torch/zip_directory.h"

namespace aerie {
namespace {

constexpr size_t kMaxDepth = 32, kMaxName = 1024, kMaxTensors = size_t{1} << 17;
constexpr size_t kMaxValueText = 4096;
constexpr size_t kMaxTorchRank = 16;
// A tensor may be larger than its storage (a stride of 0), and several may share one.
constexpr int64_t kMaxGrowth = 64;

constexpr std::string_view kZipStart = "PK\x03\x04";
// A pickle of the number 0x1950A86A20F9469CFC6C.
constexpr std::string_view kOldStart("\x80\x02\x8A\x0Al\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.", 15);

// What a persistent id says of a storage.
struct Storage {
  SafetensorsType type = SafetensorsType::kF32;
  std::string_view key;
  int64_t elements = 0;
  bool is_view = false;
};

}  // namespace

// Takes the values of a pickle apart.
class TorchReader {
 public:
  explicit TorchReader(TorchFile& file) : file_(file), bytes_(file.bytes_) {}

  Status read();

 private:
  Status read_archive();
  Status read_old();
  Expected<Pickle> next_pickle(size_t& offset, const char* what) const;
  Status walk();
  Status visit(PickleId id, const std::string& name, size_t depth);
  Status visit_items(PickleId id, const std::string& name, size_t depth);
  Status add_list(PickleId id, const std::string& name);
  Status add_value(const PickleValue& value, const std::string& name);
  Status add_tensor(PickleId id, const std::string& name);
  Status fill_tensor(std::span<const PickleId> arguments, bool has_type, TorchTensor& tensor);
  Status place(std::span<const PickleId> arguments, const Storage& storage, TorchTensor& tensor);
  Expected<Storage> storage_of(PickleId id) const;
  Expected<std::span<const std::byte>> bytes_of(const Storage& storage) const;
  Expected<std::vector<int64_t>> sizes_of(PickleId id, const char* what) const;
  Expected<int64_t> integer_of(PickleId id, const char* what) const;
  Expected<SafetensorsType> type_of(PickleId id) const;
  Status add_name(const std::string& name);
  bool is_list_of_numbers(PickleId id) const;

  TorchFile& file_;
  std::span<const std::byte> bytes_;
  std::optional<Pickle> pickle_;
  std::optional<ZipDirectory> archive_;
  std::string folder_;  // of the archive: "archive/"
  // Of an old file: where each storage lies, and of how many elements it is.
  std::map<std::string_view, std::pair<int64_t, std::span<const std::byte>>> old_storages_;
  std::unordered_set<std::string> names_;
  size_t steps_ = 0;
  int64_t total_bytes_ = 0;
};

Status TorchReader::read() {
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  if (text.empty()) return invalid_data("is empty, not a file of torch.save()");
  if (is_git_lfs_pointer(text)) {
    return invalid_data(
        "is not a file of torch.save() but a Git LFS pointer to one; fetch it with: git lfs pull");
  }
  if (text.starts_with(kZipStart)) {
    AERIE_RETURN_IF_ERROR(read_archive());
  } else if (text.starts_with(kOldStart)) {
    AERIE_RETURN_IF_ERROR(read_old());
  } else {
    return invalid_data(
        "is not a file of torch.save(): it starts with \"{}\". Files from before PyTorch 0.2 and "
        "bare pickles are not read; load such a one in Python and save it with torch.save() again",
        printable(text.substr(0, 16)));
  }
  return walk();
}

Status TorchReader::read_archive() {
  constexpr std::string_view kPickle = "/data.pkl";
  AERIE_ASSIGN_OR_RETURN(archive_, ZipDirectory::parse(bytes_));
  const ZipMember* data = nullptr;
  for (const ZipMember& member : archive_->members()) {
    if (!member.name.ends_with(kPickle)) continue;
    if (member.name.find('/') != member.name.size() - kPickle.size()) continue;
    if (data != nullptr) return invalid_data("the archive has two pickles of data");
    data = &member;
  }
  if (data == nullptr) {
    return invalid_data("is a zip archive without data.pkl, so not one of torch.save()");
  }
  folder_ = data->name.substr(0, data->name.size() - kPickle.size() + 1);
  if (archive_->find(folder_ + "constants.pkl") != nullptr) {
    return not_supported("is a TorchScript program, not a file of tensors");
  }
  const ZipMember* order = archive_->find(folder_ + "byteorder");
  const std::string_view little = "little";
  if (order != nullptr &&
      !std::equal(order->data.begin(), order->data.end(), std::as_bytes(std::span(little)).begin(),
                  std::as_bytes(std::span(little)).end())) {
    return not_supported(
        "its numbers do not have the lowest byte first; save it on such a machine");
  }
  AERIE_ASSIGN_OR_RETURN(pickle_, Pickle::parse(data->data, "data.pkl"));
  return {};
}

Expected<Pickle> TorchReader::next_pickle(size_t& offset, const char* what) const {
  AERIE_ASSIGN_OR_RETURN(Pickle pickle, Pickle::parse(bytes_.subspan(offset), what));
  offset += pickle.bytes();
  return pickle;
}

// Magic number, version, sizes of C's types, the data, the storages' keys in order; then for each
// how many elements it has, and these.
Status TorchReader::read_old() {
  size_t offset = kOldStart.size();
  AERIE_ASSIGN_OR_RETURN(const Pickle version, next_pickle(offset, "version"));
  if (version.at(version.root()).kind != PickleKind::kInteger ||
      version.at(version.root()).integer != 1001) {
    return not_supported("is of another version of torch.save() than 1001; save it again");
  }
  AERIE_ASSIGN_OR_RETURN(const Pickle system, next_pickle(offset, "system"));
  const std::span<const PickleId> entries = system.items(system.root());
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (system.at(entries[i]).text == "little_endian" && system.at(entries[i + 1]).integer == 0) {
      return not_supported("its numbers do not have the lowest byte first");
    }
  }
  AERIE_ASSIGN_OR_RETURN(pickle_, next_pickle(offset, "data"));
  AERIE_ASSIGN_OR_RETURN(const Pickle keys, next_pickle(offset, "keys"));
  std::map<std::string_view, int64_t> widths;
  for (PickleId id = 0; id < pickle_->size(); ++id) {
    if (pickle_->at(id).kind != PickleKind::kPersistent) continue;
    AERIE_ASSIGN_OR_RETURN(const Storage storage, storage_of(id));
    if (storage.is_view) return not_supported("has views of storages, as PyTorch 0.3 wrote them");
    const auto [at, is_new] = widths.emplace(storage.key, element_bytes(storage.type));
    if (!is_new && at->second != element_bytes(storage.type)) {
      return invalid_data("the storage '{}' has elements of two sizes", printable(storage.key));
    }
  }
  for (const PickleId id : keys.items(keys.root())) {
    const std::string_view key = keys.at(id).text;
    const auto width = widths.find(key);
    if (width == widths.end() || old_storages_.contains(width->first)) {
      return invalid_data("the storage '{}' belongs to no tensor, or is there twice",
                          printable(key));
    }
    ByteReader reader(bytes_);
    uint64_t elements = 0;
    AERIE_RETURN_IF_ERROR(reader.skip(offset));
    AERIE_RETURN_IF_ERROR(reader.read(elements));
    const auto bytes_each = static_cast<uint64_t>(width->second);
    AERIE_RETURN_IF_ERROR(reader.require(elements, bytes_each));
    offset = reader.offset() + static_cast<size_t>(elements * bytes_each);
    old_storages_[width->first] = {static_cast<int64_t>(elements),
                                   bytes_.subspan(reader.offset(), offset - reader.offset())};
  }
  return {};
}

Status TorchReader::walk() {
  const PickleKind kind = pickle_->at(pickle_->root()).kind;
  const bool is_whole = kind == PickleKind::kCall || is_list_of_numbers(pickle_->root());
  if (!is_whole && kind != PickleKind::kDict && kind != PickleKind::kList &&
      kind != PickleKind::kTuple) {
    return not_supported("holds a single value, and neither tensors nor dicts or lists of them");
  }
  AERIE_RETURN_IF_ERROR(visit(pickle_->root(), is_whole ? "data" : "", 0));
  const auto limit = file_.file_bytes() * kMaxGrowth;
  if (total_bytes_ > limit) {
    return not_supported("its tensors would take {} bytes, more than {} times the file's {}",
                         total_bytes_, kMaxGrowth, file_.file_bytes());
  }
  return {};
}

Status TorchReader::visit(PickleId id, const std::string& name, size_t depth) {
  // Containers may share others, and every path to a tensor is a name of its own.
  if (++steps_ > 2 * pickle_->size() + 16) return not_supported("its containers share each other");
  if (depth > kMaxDepth) return not_supported("its containers are nested {} deep", depth);
  const PickleValue& value = pickle_->at(id);
  switch (value.kind) {
    case PickleKind::kDict:
      return visit_items(id, name, depth);
    case PickleKind::kList:
    case PickleKind::kTuple:
      return is_list_of_numbers(id) ? add_list(id, name) : visit_items(id, name, depth);
    case PickleKind::kCall:
      return add_tensor(id, name).with_context(fmt::format("tensor '{}'", printable(name)));
    case PickleKind::kPersistent:
      return not_supported("'{}' is a storage without a tensor", printable(name));
    case PickleKind::kNone:
    case PickleKind::kBytes:
      return {};
    default:
      return add_value(value, name);
  }
}

Status TorchReader::visit_items(PickleId id, const std::string& name, size_t depth) {
  const bool is_dict = pickle_->at(id).kind == PickleKind::kDict;
  const std::span<const PickleId> items = pickle_->items(id);
  for (size_t i = 0; i < items.size(); i += is_dict ? 2 : 1) {
    std::string key = std::to_string(i);
    if (is_dict) {
      const PickleValue& value = pickle_->at(items[i]);
      if (value.kind != PickleKind::kString && value.kind != PickleKind::kInteger) {
        return not_supported("a dict in '{}' has keys that are neither strings nor integers",
                             printable(name));
      }
      key = value.kind == PickleKind::kString ? std::string(value.text.substr(0, kMaxName + 1))
                                              : std::to_string(value.integer);
    }
    std::string full = name;
    if (!full.empty()) full += '.';
    full += key;
    if (full.size() > kMaxName) {
      return not_supported("the name '{}' is longer than {} bytes", printable(full), kMaxName);
    }
    AERIE_RETURN_IF_ERROR(visit(items[i + (is_dict ? 1 : 0)], full, depth + 1));
  }
  return {};
}

bool TorchReader::is_list_of_numbers(PickleId id) const {
  const PickleKind kind = pickle_->at(id).kind;
  const std::span<const PickleId> items = pickle_->items(id);
  if ((kind != PickleKind::kList && kind != PickleKind::kTuple) || items.empty()) return false;
  return std::ranges::all_of(items, [&](PickleId item) {
    const PickleKind k = pickle_->at(item).kind;
    return k == PickleKind::kInteger || k == PickleKind::kFloat;
  });
}

Status TorchReader::add_name(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) {
    return invalid_data("the name '{}' is empty or holds a NUL byte", printable(name));
  }
  if (names_.size() >= kMaxTensors) return not_supported("has more than {} entries", kMaxTensors);
  if (names_.insert(name).second) return {};
  return invalid_data("'{}' is there twice", printable(name));
}

Status TorchReader::add_list(PickleId id, const std::string& name) {
  AERIE_RETURN_IF_ERROR(add_name(name));
  const std::span<const PickleId> items = pickle_->items(id);
  const bool is_whole = std::ranges::all_of(
      items, [&](PickleId item) { return pickle_->at(item).kind == PickleKind::kInteger; });
  static_assert(sizeof(int64_t) == sizeof(double));
  const size_t bytes = items.size() * sizeof(int64_t);
  // Lists may be shared, and each name of one is a copy.
  if (total_bytes_ + static_cast<int64_t>(bytes) > file_.file_bytes() * kMaxGrowth) {
    return not_supported("its lists would take more than {} times the file's {} bytes", kMaxGrowth,
                         file_.file_bytes());
  }
  steps_ += items.size();
  std::byte* out = file_.made_.emplace_back(new std::byte[bytes]).get();
  for (size_t i = 0; i < items.size(); ++i) {
    const PickleValue& value = pickle_->at(items[i]);
    const double number =
        value.kind == PickleKind::kInteger ? static_cast<double>(value.integer) : value.number;
    std::memcpy(out + i * sizeof(int64_t),
                is_whole ? static_cast<const void*>(&value.integer) : &number, sizeof(int64_t));
  }
  TorchTensor& tensor = file_.tensors_.emplace_back();
  tensor.name = name;
  tensor.type = is_whole ? SafetensorsType::kI64 : SafetensorsType::kF64;
  tensor.shape = {static_cast<int64_t>(items.size())};
  tensor.strides = {1};
  tensor.storage = {out, bytes};
  total_bytes_ += static_cast<int64_t>(bytes);
  return {};
}

Status TorchReader::add_value(const PickleValue& value, const std::string& name) {
  AERIE_RETURN_IF_ERROR(add_name(name));
  std::string text(value.text.substr(0, kMaxValueText));
  if (text.size() < value.text.size()) return {};  // no setting is so long
  if (value.kind == PickleKind::kBool) text = value.integer != 0 ? "true" : "false";
  if (value.kind == PickleKind::kInteger) text = std::to_string(value.integer);
  if (value.kind == PickleKind::kFloat) text = fmt::format("{}", value.number);
  file_.values_.emplace_back(name, std::move(text));
  return {};
}

Expected<int64_t> TorchReader::integer_of(PickleId id, const char* what) const {
  const PickleValue& value = pickle_->at(id);
  if (value.kind != PickleKind::kInteger || value.integer < 0) {
    return invalid_data("{} is not an integer of at least 0", what);
  }
  return value.integer;
}

Expected<std::vector<int64_t>> TorchReader::sizes_of(PickleId id, const char* what) const {
  const std::span<const PickleId> items = pickle_->items(id);
  if (pickle_->at(id).kind != PickleKind::kTuple || items.size() > kMaxTorchRank) {
    return invalid_data("{} is not a tuple of at most {}", what, kMaxTorchRank);
  }
  std::vector<int64_t> sizes;
  for (const PickleId item : items) {
    AERIE_ASSIGN_OR_RETURN(const int64_t size, integer_of(item, what));
    sizes.push_back(size);
  }
  return sizes;
}

Expected<SafetensorsType> TorchReader::type_of(PickleId id) const {
  const PickleValue& value = pickle_->at(id);
  const TorchGlobal* global =
      value.kind == PickleKind::kGlobal ? find_torch_global(value.text) : nullptr;
  if (global != nullptr && global->role == TorchRole::kType) return global->type;
  return invalid_data("what should be a type of elements is none");
}

// ('storage', type, key, where it was, elements), and in old files what it is a view of.
Expected<Storage> TorchReader::storage_of(PickleId id) const {
  if (pickle_->at(id).kind != PickleKind::kPersistent) return invalid_data("has no storage");
  const std::span<const PickleId> parts = pickle_->items(pickle_->items(id)[0]);
  if (parts.size() < 5 || parts.size() > 6 || pickle_->at(parts[0]).text != "storage" ||
      pickle_->at(parts[2]).kind != PickleKind::kString) {
    return invalid_data("the description of its storage is not one");
  }
  Storage storage;
  AERIE_ASSIGN_OR_RETURN(storage.type, type_of(parts[1]));
  storage.key = pickle_->at(parts[2]).text;
  AERIE_ASSIGN_OR_RETURN(storage.elements, integer_of(parts[4], "the length of its storage"));
  storage.is_view = parts.size() == 6 && pickle_->at(parts[5]).kind != PickleKind::kNone;
  return storage;
}

Expected<std::span<const std::byte>> TorchReader::bytes_of(const Storage& storage) const {
  std::span<const std::byte> bytes;
  if (archive_) {
    const ZipMember* member = storage.key.size() > kMaxName
                                  ? nullptr
                                  : archive_->find(fmt::format("{}data/{}", folder_, storage.key));
    if (member == nullptr) {
      return invalid_data("there is no '{}data/{}' in the archive", printable(folder_),
                          printable(storage.key));
    }
    bytes = member->data;
  } else {
    const auto at = old_storages_.find(storage.key);
    if (at == old_storages_.end())
      return invalid_data("there is no storage '{}'", printable(storage.key));
    bytes = at->second.second;
  }
  const auto width = static_cast<uint64_t>(element_bytes(storage.type));
  if (static_cast<uint64_t>(storage.elements) > bytes.size() / width) {
    return invalid_data("its storage has {} bytes for {} elements of {}", bytes.size(),
                        storage.elements, width);
  }
  return bytes.first(static_cast<size_t>(static_cast<uint64_t>(storage.elements) * width));
}

// That all elements lie in the storage, and where the first is.
Status TorchReader::place(std::span<const PickleId> arguments, const Storage& storage,
                          TorchTensor& tensor) {
  AERIE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, bytes_of(storage));
  AERIE_ASSIGN_OR_RETURN(const int64_t offset, integer_of(arguments[1], "its offset"));
  AERIE_ASSIGN_OR_RETURN(tensor.shape, sizes_of(arguments[2], "its shape"));
  AERIE_ASSIGN_OR_RETURN(tensor.strides, sizes_of(arguments[3], "its strides"));
  if (tensor.shape.size() != tensor.strides.size()) {
    return invalid_data("has {} sizes and {} strides", tensor.shape.size(), tensor.strides.size());
  }
  const int64_t width = element_bytes(tensor.type);
  const int64_t stored = static_cast<int64_t>(bytes.size()) / width;
  int64_t elements = 1, last = 0;
  const auto limit = std::numeric_limits<int64_t>::max() / 8;
  for (const int64_t size : tensor.shape) {
    if (size > limit / std::max<int64_t>(elements, 1)) return invalid_data("has too many elements");
    elements *= size;
  }
  for (size_t i = 0; elements > 0 && i < tensor.shape.size(); ++i) {
    const int64_t steps = tensor.shape[i] - 1, stride = tensor.strides[i];
    if (steps > 0 && stride > (stored - last) / steps) {
      return invalid_data("reaches out of its storage of {} elements", stored);
    }
    last += steps * stride;
  }
  if (offset > stored || (elements > 0 && last >= stored - offset)) {
    return invalid_data("reaches out of its storage of {} elements", stored);
  }
  tensor.storage = bytes.subspan(static_cast<size_t>(offset * width));
  const int64_t limit_left = std::numeric_limits<int64_t>::max() - total_bytes_;
  total_bytes_ += std::min(limit_left, elements * width);
  return {};
}

// (storage, offset, shape, strides, requires_grad, hooks [, type] [, attributes])
Status TorchReader::fill_tensor(std::span<const PickleId> arguments, bool has_type,
                                TorchTensor& tensor) {
  const size_t attributes = has_type ? 7 : 6;
  if (arguments.size() < 4 || (has_type && arguments.size() < 7)) {
    return invalid_data("is described by {} values", arguments.size());
  }
  if (arguments.size() > attributes &&
      (pickle_->at(arguments[attributes]).kind != PickleKind::kNone &&
       !pickle_->items(arguments[attributes]).empty())) {
    return not_supported("is conjugated, negated or otherwise more than its elements");
  }
  AERIE_ASSIGN_OR_RETURN(Storage storage, storage_of(arguments[0]));
  tensor.type = storage.type;
  if (has_type) {
    AERIE_ASSIGN_OR_RETURN(tensor.type, type_of(arguments[6]));
  }
  return place(arguments, storage, tensor);
}

Status TorchReader::add_tensor(PickleId id, const std::string& name) {
  AERIE_RETURN_IF_ERROR(add_name(name));
  // A parameter is a tensor with a note that it is trained.
  for (size_t i = 0; pickle_->at(id).text.starts_with("torch._utils._rebuild_parameter"); ++i) {
    const std::span<const PickleId> arguments = pickle_->items(id);
    if (arguments.empty() || pickle_->at(arguments[0]).kind != PickleKind::kCall || i > 1) {
      return invalid_data("is a parameter without a tensor");
    }
    id = arguments[0];
  }
  const std::string_view callee = pickle_->at(id).text;
  TorchTensor tensor;
  tensor.name = name;
  AERIE_RETURN_IF_ERROR(
      fill_tensor(pickle_->items(id), callee == "torch._utils._rebuild_tensor_v3", tensor));
  file_.tensors_.push_back(std::move(tensor));
  return {};
}

Expected<TorchFile> TorchFile::parse(std::span<const std::byte> bytes, std::string name) {
  TorchFile file(std::move(name));
  file.bytes_ = bytes;
  AERIE_RETURN_IF_ERROR(TorchReader(file).read().with_context(file.name_));
  return file;
}

Expected<TorchFile> TorchFile::open(const std::string& path) {
  TorchFile file(path);
  AERIE_ASSIGN_OR_RETURN(file.file_, MappedFile::open(path));
  file.bytes_ = file.file_.bytes();
  const Status read = TorchReader(file).read();
  AERIE_RETURN_IF_ERROR(file.check());
  AERIE_RETURN_IF_ERROR(read.with_context(path));
  return file;
}

}  // namespace aerie
