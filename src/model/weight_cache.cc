#include "model/weight_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/errors.h"
#include "base/progress.h"
#include "format/byte_reader.h"
#include "format/checksum.h"
#include "format/fingerprint.h"
#include "format/output_file.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "aeriepk1";
constexpr int64_t kHeaderBytes = 64;
constexpr int64_t kAlignment = 4096;
constexpr int64_t kMaxIndexBytes = int64_t{16} << 20;
// Read at a time, so that the checksum finds it in the processor's cache.
constexpr size_t kPiece = size_t{256} << 10;

struct Header {
  char magic[8];
  uint64_t fingerprint;
  uint64_t index_bytes;
  uint64_t index_checksum;
  uint64_t unused[4];
};
static_assert(sizeof(Header) == kHeaderBytes && std::endian::native == std::endian::little);

uint64_t checksum_of(std::string_view text) {
  return checksum(std::as_bytes(std::span(text))) + text.size();
}

int64_t aligned(int64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Letters, digits and what else is harmless in a file's name.
std::string file_name_part(const std::string& text) {
  std::string part = text.substr(0, 64);
  for (char& c : part) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!plain && c != '.' && c != '-' && c != '_') c = '_';
  }
  return part;
}

std::string index_of(std::span<const WeightCache::Item> items,
                     std::span<const WeightCache::Entry> entries) {
  std::string index;
  append<uint64_t>(index, items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    append<uint32_t>(index, static_cast<uint32_t>(items[i].name.size()));
    index += items[i].name;
    append<uint64_t>(index, static_cast<uint64_t>(entries[i].offset));
    append<uint64_t>(index, static_cast<uint64_t>(entries[i].size));
    append<uint64_t>(index, entries[i].checksum);
  }
  return index;
}

uint64_t shared_checksum(std::span<const std::byte> bytes, ThreadPool& pool) {
  std::atomic<uint64_t> sum = 0;
  pool.parallel_for(static_cast<int64_t>(bytes.size()), 64, [&](int64_t begin, int64_t end, int) {
    const auto from = static_cast<size_t>(begin);
    sum += checksum(bytes.subspan(from, static_cast<size_t>(end) - from), from);
  });
  return sum;
}

}  // namespace

Expected<WeightCache> WeightCache::of(const std::string& folder, const ModelFile& file,
                                      const kernels::Backend& backend) {
  const std::optional<uint64_t> source = fingerprint(file);
  if (!source) {
    return not_supported(
        "{}: its packed weights cannot be kept, since it is not known what files they come from",
        file.name());
  }
  // Any part of a split model leads to the first.
  std::error_code ignored;
  const fs::path first = file.sources().front().path;
  fs::path whole = fs::weakly_canonical(first, ignored);
  if (ignored) whole = first;
  const std::string_view isa = kernels::isa_name(backend.isa());
  const uint64_t place = checksum_of(fmt::format("{}\n{}\n{}", whole.string(), isa, file.format()));
  const std::string name =
      fmt::format("{}-{}-{:016x}.packed", file_name_part(whole.parent_path().filename().string()),
                  file_name_part(whole.stem().string()), place);
  const uint64_t made =
      checksum_of(fmt::format("{:x} {} {} {}", *source, isa, kPackingVersion, file.format()));
  return WeightCache((fs::path(folder) / name).string(), made);
}

Status WeightCache::read_index(const InputFile& file) {
  const auto broken = [&](std::string_view why) { return invalid_data("{}: {}", path_, why); };
  Header header = {};
  AERIE_RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(&header, 1))));
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic) {
    return broken("is not a file of packed weights");
  }
  if (header.fingerprint != fingerprint_) {
    return broken("was made of other files than the model has now, or by another version");
  }
  const auto left = static_cast<uint64_t>(file.size() - kHeaderBytes);
  if (header.index_bytes > std::min<uint64_t>(left, kMaxIndexBytes)) {
    return broken("is cut short or damaged");
  }
  std::string index(header.index_bytes, '\0');
  AERIE_RETURN_IF_ERROR(file.read(kHeaderBytes, std::as_writable_bytes(std::span(index))));
  if (checksum_of(index) != header.index_checksum) return broken("is damaged");

  ByteReader reader(std::as_bytes(std::span(index)));
  uint64_t count = 0;
  AERIE_RETURN_IF_ERROR(reader.read(count));
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    std::string_view name;
    uint64_t offset = 0, size = 0;
    Entry entry;
    AERIE_RETURN_IF_ERROR(reader.read(length));
    AERIE_RETURN_IF_ERROR(reader.read_text(length, name));
    AERIE_RETURN_IF_ERROR(reader.read(offset));
    AERIE_RETURN_IF_ERROR(reader.read(size));
    AERIE_RETURN_IF_ERROR(reader.read(entry.checksum));
    const auto end = static_cast<uint64_t>(file.size());
    if (offset > end || size > end - offset) return broken("is cut short");
    entry.offset = static_cast<int64_t>(offset);
    entry.size = static_cast<int64_t>(size);
    entries_.emplace(name, entry);
  }
  return {};
}

Status WeightCache::open() {
  AERIE_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path_));
  if (Status status = read_index(file); !status.ok()) {
    entries_.clear();
    return status;
  }
  file_ = std::move(file);
  return {};
}

void WeightCache::close() {
  entries_.clear();
  file_.reset();
}

const WeightCache::Entry* WeightCache::find(std::string_view name, int64_t size) const {
  const auto entry = entries_.find(name);
  return entry == entries_.end() || entry->second.size != size ? nullptr : &entry->second;
}

Status WeightCache::read(const Entry& entry, int64_t offset, std::span<std::byte> part,
                         std::atomic<uint64_t>& sum) const {
  while (!part.empty()) {
    const std::span<std::byte> piece = part.first(std::min(kPiece, part.size()));
    AERIE_RETURN_IF_ERROR(file_->read(entry.offset + offset, piece));
    sum += checksum(piece, static_cast<uint64_t>(offset));
    offset += static_cast<int64_t>(piece.size());
    part = part.subspan(piece.size());
  }
  return {};
}

Status WeightCache::save(std::span<const Item> items, ThreadPool& pool) const {
  std::error_code ignored;  // creating the file will say what is wrong
  fs::create_directories(fs::path(path_).parent_path(), ignored);
  // A pipe would be waited for.
  if (fs::exists(path_, ignored) && !fs::is_regular_file(path_, ignored)) {
    return invalid_argument("{}: is there already and is not a regular file", path_);
  }
  AERIE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path_));

  std::vector<Entry> entries(items.size());
  int64_t offset = aligned(kHeaderBytes + static_cast<int64_t>(index_of(items, entries).size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const auto size = static_cast<int64_t>(items[i].bytes.size());
    entries[i] = {offset, size, shared_checksum(items[i].bytes, pool)};
    offset = aligned(offset + size);
  }
  const std::string index = index_of(items, entries);
  Header header = {};
  std::memcpy(header.magic, kMagic.data(), sizeof(header.magic));
  header.fingerprint = fingerprint_;
  header.index_bytes = index.size();
  header.index_checksum = checksum_of(index);

  AERIE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(&header, 1))));
  AERIE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(index))));
  Progress progress("keeping packed weights", offset, ProgressUnit::kBytes);
  for (const Item& item : items) {
    AERIE_RETURN_IF_ERROR(file.pad_to(kAlignment));
    AERIE_RETURN_IF_ERROR(file.write(item.bytes));
    progress.set(file.size());
  }
  return file.commit(OutputFile::Sync::kNo);
}

}  // namespace aerie
