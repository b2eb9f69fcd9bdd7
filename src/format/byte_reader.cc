#include "format/byte_reader.h"

#include "base/errors.h"

namespace aerie {

Status ByteReader::missing(uint64_t count, uint64_t bytes_each) const {
  if (count > UINT64_MAX / bytes_each) {
    return invalid_data("{} items are declared at offset {} of {}, more than a file can hold",
                        count, offset_, bytes_.size());
  }
  const uint64_t wanted = count * bytes_each;
  return invalid_data(
      "at least {} bytes are missing: {} are wanted at offset {}, but the file ends at {} (the "
      "download may be incomplete)",
      wanted - remaining(), wanted, offset_, bytes_.size());
}

}  // namespace aerie
