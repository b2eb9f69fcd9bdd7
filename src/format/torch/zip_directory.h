// The members of a zip archive that are stored as they are, as torch.save() writes them.
//
// An archive is hostile until it is checked: the directory, every entry and every local header lie
// inside the file, say the same, and no two members overlap. Checksums are not compared: torch.save
// can be told to leave them out.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/name_index.h"

namespace aerie {

struct ZipMember {
  std::string_view name;
  std::span<const std::byte> data;
};

class ZipDirectory {
 public:
  // Of an archive that is all of `bytes`, which must outlive the object. kInvalidData if it is
  // broken; kUnsupported if a member is compressed or encrypted, or if the archive has several
  // parts. Messages are to be preceded by the file's name.
  static Expected<ZipDirectory> parse(std::span<const std::byte> bytes);

  // In the directory's order.
  std::span<const ZipMember> members() const { return members_; }
  const ZipMember* find(std::string_view name) const;  // nullptr if absent

 private:
  std::vector<ZipMember> members_;
  NameIndex index_;
};

}  // namespace aerie
