#include "format/torch/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/errors.h"
#include "format/byte_reader.h"
#include "format/text.h"

namespace aerie {
namespace {

// APPNOTE.TXT 6.3: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
constexpr uint32_t kLocal = 0x04034B50, kEntry = 0x02014B50, kEnd = 0x06054B50;
constexpr uint32_t kEnd64 = 0x06064B50, kLocator64 = 0x07064B50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kLocatorBytes = 20;
constexpr size_t kMaxComment = 0xFFFF;
constexpr uint16_t kExtra64 = 1, kMask16 = 0xFFFF, kEncrypted = 1;
constexpr uint32_t kMask32 = 0xFFFFFFFF;

// A little-endian number of a record that is known to be there.
template <typename T>
T number_at(std::string_view record, size_t offset) {
  T value;
  std::memcpy(&value, record.data() + offset, sizeof(T));
  return value;
}

// `count` bytes from `offset` on.
Expected<std::string_view> part_of(std::span<const std::byte> bytes, uint64_t offset,
                                   uint64_t count) {
  ByteReader reader(bytes);
  AERIE_RETURN_IF_ERROR(reader.skip(offset));
  std::string_view part;
  AERIE_RETURN_IF_ERROR(reader.read_text(count, part));
  return part;
}

// Where the list of members is.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

// The offset of the record at the end, behind which there may be a comment that fills the file.
Expected<size_t> find_end(std::span<const std::byte> bytes) {
  if (bytes.size() < kEndBytes) return invalid_data("is too short for a zip archive");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t last = bytes.size() - kEndBytes;
  const size_t first = last - std::min(last, kMaxComment);
  for (size_t at = last + 1; at-- > first;) {
    if (number_at<uint32_t>(text, at) == kEnd &&
        number_at<uint16_t>(text, at + 20) == bytes.size() - at - kEndBytes) {
      return at;
    }
  }
  return invalid_data("the zip archive has no end (the download may be incomplete)");
}

Expected<Directory> find_directory(std::span<const std::byte> bytes) {
  AERIE_ASSIGN_OR_RETURN(const size_t end, find_end(bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (number_at<uint16_t>(text, end + 4) != 0 || number_at<uint16_t>(text, end + 6) != 0) {
    return not_supported("is one part of a zip archive of several");
  }
  Directory directory = {number_at<uint32_t>(text, end + 16), number_at<uint32_t>(text, end + 12),
                         number_at<uint16_t>(text, end + 10)};
  const bool is_large =
      directory.offset == kMask32 || directory.bytes == kMask32 || directory.entries == kMask16;
  const bool has_locator =
      end >= kLocatorBytes && number_at<uint32_t>(text, end - kLocatorBytes) == kLocator64;
  size_t limit = end;
  if (is_large && has_locator) {
    const auto at = number_at<uint64_t>(text, end - kLocatorBytes + 8);
    AERIE_ASSIGN_OR_RETURN(const std::string_view record, part_of(bytes, at, 56));
    if (number_at<uint32_t>(record, 0) != kEnd64)
      return invalid_data("the zip64 end is not where it is said to be");
    directory = {number_at<uint64_t>(record, 48), number_at<uint64_t>(record, 40),
                 number_at<uint64_t>(record, 32)};
    limit = static_cast<size_t>(at);
  }
  if (directory.offset > limit || directory.bytes > limit - directory.offset) {
    return invalid_data("the zip directory of {} bytes at {} leaves the file", directory.bytes,
                        directory.offset);
  }
  if (directory.entries > directory.bytes / kEntryBytes) {
    return invalid_data("{} members do not fit into a zip directory of {} bytes", directory.entries,
                        directory.bytes);
  }
  return directory;
}

struct Entry {
  ZipMember member;
  uint64_t begin = 0, end = 0;  // with the local header
};

// Sizes and offset that do not fit 32 bits stand in an extra field, those alone and in this order.
Status read_extra(std::string_view extra, uint64_t& size, uint64_t& stored, uint64_t& offset) {
  while (extra.size() >= 4) {
    const auto tag = number_at<uint16_t>(extra, 0);
    const auto length = number_at<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (length > extra.size()) break;
    if (tag != kExtra64) {
      extra.remove_prefix(length);
      continue;
    }
    std::string_view values = extra.substr(0, length);
    for (uint64_t* value : {&size, &stored, &offset}) {
      if (*value != kMask32) continue;
      if (values.size() < sizeof(uint64_t)) return invalid_data("its zip64 field is too short");
      *value = number_at<uint64_t>(values, 0);
      values.remove_prefix(sizeof(uint64_t));
    }
    return {};
  }
  return {};
}

// The local header repeats the entry and has a length of its own.
Status place(std::span<const std::byte> bytes, uint64_t offset, uint64_t size, uint64_t limit,
             Entry& entry) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view local, part_of(bytes, offset, kLocalBytes));
  if (number_at<uint32_t>(local, 0) != kLocal)
    return invalid_data("there is no header at {}", offset);
  const uint64_t name_bytes = number_at<uint16_t>(local, 26);
  const uint64_t extra_bytes = number_at<uint16_t>(local, 28);
  AERIE_ASSIGN_OR_RETURN(const std::string_view name,
                         part_of(bytes, offset + kLocalBytes, name_bytes));
  if (name != entry.member.name) return invalid_data("its header calls it '{}'", printable(name));
  const uint64_t begin = offset + kLocalBytes + name_bytes + extra_bytes;
  if (begin > limit || size > limit - begin) {
    return invalid_data("its {} bytes at {} reach into the directory at {}", size, begin, limit);
  }
  entry.begin = offset;
  entry.end = begin + size;
  entry.member.data = bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  return {};
}

Status read_entry(std::span<const std::byte> bytes, uint64_t limit, std::string_view record,
                  std::string_view extra, Entry& entry) {
  if ((number_at<uint16_t>(record, 8) & kEncrypted) != 0) return not_supported("is encrypted");
  if (number_at<uint16_t>(record, 10) != 0) {
    return not_supported(
        "is compressed, which torch.save() does not do: save the file with it again");
  }
  uint64_t stored = number_at<uint32_t>(record, 20), size = number_at<uint32_t>(record, 24);
  uint64_t offset = number_at<uint32_t>(record, 42);
  AERIE_RETURN_IF_ERROR(read_extra(extra, size, stored, offset));
  if (stored != size) return invalid_data("is stored in {} bytes and has {}", stored, size);
  return place(bytes, offset, size, limit, entry);
}

// A header that lies in another member's bytes would hide something.
Status check_overlap(std::vector<Entry> entries) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].begin >= entries[i - 1].end) continue;
    return invalid_data("the members '{}' and '{}' overlap in the zip archive",
                        printable(entries[i - 1].member.name), printable(entries[i].member.name));
  }
  return {};
}

}  // namespace

Expected<ZipDirectory> ZipDirectory::parse(std::span<const std::byte> bytes) {
  AERIE_ASSIGN_OR_RETURN(const Directory directory, find_directory(bytes));
  ByteReader reader(
      bytes.subspan(static_cast<size_t>(directory.offset), static_cast<size_t>(directory.bytes)));
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    std::string_view record, name, extra;
    AERIE_RETURN_IF_ERROR(reader.read_text(kEntryBytes, record).with_context("zip directory"));
    if (number_at<uint32_t>(record, 0) != kEntry) {
      return invalid_data("entry {} of the zip directory is none", i);
    }
    AERIE_RETURN_IF_ERROR(
        reader.read_text(number_at<uint16_t>(record, 28), name).with_context("zip directory"));
    AERIE_RETURN_IF_ERROR(
        reader.read_text(number_at<uint16_t>(record, 30), extra).with_context("zip directory"));
    AERIE_RETURN_IF_ERROR(
        reader.skip(number_at<uint16_t>(record, 32)).with_context("zip directory"));
    Entry& entry = entries.emplace_back();
    entry.member.name = name;
    AERIE_RETURN_IF_ERROR(read_entry(bytes, directory.offset, record, extra, entry)
                              .with_context(fmt::format("member '{}'", printable(name))));
  }
  AERIE_RETURN_IF_ERROR(check_overlap(entries));
  ZipDirectory made;
  for (const Entry& entry : entries) made.members_.push_back(entry.member);
  const auto twin = made.index_.build(static_cast<uint32_t>(made.members_.size()),
                                      [&](uint32_t i) { return made.members_[i].name; });
  if (twin) return invalid_data("the zip archive has two members '{}'", printable(*twin));
  return made;
}

const ZipMember* ZipDirectory::find(std::string_view name) const {
  const auto index = index_.find(name);
  return index ? &members_[*index] : nullptr;
}

}  // namespace aerie
